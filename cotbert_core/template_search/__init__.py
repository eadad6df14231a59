"""Searching and generating templates for an encoder that nobody trained."""
