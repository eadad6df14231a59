"""Model folders and the card in them."""
