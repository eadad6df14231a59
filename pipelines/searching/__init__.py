"""`cotbert search` and `index`: the query's encoder, texts by id, keywords, FAISS."""
