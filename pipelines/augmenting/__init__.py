"""`cotbert augment`: rewriting a corpus by back-translation or a language model."""
