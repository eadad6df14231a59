"""Templates as text, tokenized templates around sentences, and lists of token ids."""
