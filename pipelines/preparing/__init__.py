"""The passes of `cotbert prepare`, and the search for duplicates and excluded sentences."""
