"""The rewriters of `cotbert augment`: translation and language models, with a ledger of both."""
