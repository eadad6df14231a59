"""`cotbert serve`: requests, limits, batches and replicas of the encoder."""
