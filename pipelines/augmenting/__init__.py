"""The rewriters of `cotbert augment`: back-translation and language models, with a ledger."""
