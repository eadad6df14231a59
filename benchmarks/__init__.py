"""Speed against named peers: `python -m benchmarks.run` from the root of the repository."""
