"""Ray clusters: one of several nodes on this machine, and jobs submitted to any."""
