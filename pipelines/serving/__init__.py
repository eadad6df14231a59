"""The HTTP service of `cotbert serve`: requests, limits, batches and the replicas that encode."""
