"""Model folders and their model cards."""
