"""Read texts from local files, buckets, docstrings and data sets of the hub."""
