"""Output folders, corpora and paths."""
