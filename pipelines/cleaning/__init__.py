"""What is done to a text before it is kept: steps that change it, filters that drop it."""
