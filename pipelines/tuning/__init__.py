"""The parts of `cotbert tune`: the choice of trials, the run of one, the report of all."""
