"""Ray clusters: a local cluster with several nodes, and jobs submitted to any cluster."""
