"""Templates: their texts, tokens around a sentence, and rows of token ids."""
