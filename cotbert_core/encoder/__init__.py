"""Opening an encoder, running rows through it, and pooling its output to sentence vectors."""
