"""`cotbert evaluate`, `geometry` and `data`: scores with intervals, and their differences."""
