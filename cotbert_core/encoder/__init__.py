"""Load an encoder, run rows through it, and pool its output to sentence vectors."""
