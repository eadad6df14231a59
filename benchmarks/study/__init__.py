"""The papers' tables on one encoder and one budget: what is run, the runs, and docs/papers.md."""
