"""The parts of `cotbert evaluate`: scores with intervals, differences, published numbers."""
