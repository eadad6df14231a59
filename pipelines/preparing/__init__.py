"""`cotbert prepare`: its passes over the text, deduplication, exclusion, held-out documents."""
