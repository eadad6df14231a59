"""Ray's start, token, log and workers, stop signals, messages and progress."""
