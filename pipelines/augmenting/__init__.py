"""How `cotbert augment` rewrites: translation and language models, with a ledger of both."""
