"""`cotbert train`: the driver, the workers, their data and their state."""
