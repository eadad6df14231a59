"""Cleaning of texts: steps that change a text, filters that drop it."""
