"""The parts of `cotbert train`: Ray Train's driver side, what a worker runs, its data and state."""
