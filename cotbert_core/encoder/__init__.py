"""Opening an encoder, running rows through it, and reading vectors out of it."""
