"""Read texts from files of many formats, local or in buckets, docstrings, SICK and data sets."""
