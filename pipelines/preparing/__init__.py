"""The passes of `cotbert prepare`, and how they find duplicates and what to keep out."""
