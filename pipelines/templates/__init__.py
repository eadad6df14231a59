"""The jobs about templates: mask predictions, token map, template search and generation."""
