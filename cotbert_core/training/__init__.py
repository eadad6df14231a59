"""The training step and its parts: batches, sampling, workers, checkpoints, timing."""
