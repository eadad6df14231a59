"""Search in finished embeddings folders: vectors, the query's encoder, texts by id, indexes."""
