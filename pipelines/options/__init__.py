"""Options of the command line, each declared once: as a field of the model that a job receives."""
