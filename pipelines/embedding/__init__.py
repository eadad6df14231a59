"""`cotbert embed`: encoding, quantization, blocks and updates, and reading what it wrote."""
