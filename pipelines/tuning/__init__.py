"""The parts of `cotbert tune`: which trials there are, what one runs, what is told of them."""
