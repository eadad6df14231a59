"""What every job needs around its own work: Ray, its token and workers, signals, full disks."""
