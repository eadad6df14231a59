"""MLflow: the tracking store, the queue used while it does not answer, the model registry."""
