"""What `cotbert pretrain` prepares: packed rows of a corpus, and a new encoder."""
