"""The start of Ray, its token, log and workers; stop signals, messages and progress."""
