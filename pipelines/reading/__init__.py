"""Where texts come from: files of many formats at any place, docstrings, SICK, data sets."""
