"""What every job needs around its own work: Ray, and where workers run."""
