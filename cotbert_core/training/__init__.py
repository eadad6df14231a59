"""One training step and what it needs: batches, sampling, workers, checkpoints, timing."""
