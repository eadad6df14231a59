"""What every job needs around its own work: Ray's token, and the signals that end a command."""
