"""Read texts from local files, buckets, docstrings, SICK and data sets of the hub."""
