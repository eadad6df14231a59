"""`cotbert compare`: its entries, their runs, and the rows of its table."""
