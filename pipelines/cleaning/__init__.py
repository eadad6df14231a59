"""Cleaning of texts: steps change a text, filters drop it."""
