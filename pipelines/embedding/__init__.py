"""The parts of `cotbert embed`: options, encoding, quantization, blocks and their ledger."""
