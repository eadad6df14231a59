"""The passes of `cotbert prepare`, deduplication, exclusion and held-out documents."""
