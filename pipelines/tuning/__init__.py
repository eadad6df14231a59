"""`cotbert tune`: trials are chosen, run and reported."""
