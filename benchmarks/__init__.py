"""Comparisons with other libraries: `python -m benchmarks.run` from the repository's root."""
