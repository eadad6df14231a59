"""What `cotbert evaluate` is made of: scores with their chance, differences, published numbers."""
