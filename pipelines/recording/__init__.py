"""MLflow: the tracking store, the queue for a store that does not answer, the model registry."""
