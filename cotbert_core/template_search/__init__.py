"""Searching and generating templates for an encoder without training it."""
