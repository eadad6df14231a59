"""The template jobs: mask predictions, token map, template search and generation."""
