"""How runs get into MLflow: the store, what waits while it is away, and the model registry."""
