"""The parts of `cotbert compare`: its entries, and the rows of its table."""
