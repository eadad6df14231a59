"""`cotbert export` and `quantize`: a model for other tools and servers, an int8 graph for CPUs."""
