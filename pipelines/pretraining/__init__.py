"""`cotbert pretrain`: packed rows of a corpus, a new encoder, and their training."""
