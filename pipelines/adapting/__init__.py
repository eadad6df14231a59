"""Choosing, by the user's own documents, how an encoder is adapted to them."""
