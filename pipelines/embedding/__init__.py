"""What `cotbert embed` is made of: options, encoding, storing, blocks and their record."""
