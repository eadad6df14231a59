"""Finished embeddings folders: their vectors, the query's encoder, texts of ids, indexes."""
