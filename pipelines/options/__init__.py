"""Command-line options, each declared once, as a field of the dataclass that a job receives."""
