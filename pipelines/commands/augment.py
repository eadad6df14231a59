"""cotbert augment: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.augmenting.options import AugmentOptions
from pipelines.commands.printing import print_facts
from pipelines.options import shared
from pipelines.runtime.ending import print_ending


@dataclass(frozen=True, kw_only=True)
class Augment:
    options: AugmentOptions
    output: shared.JobFolder
    verbose: shared.Verbose = False


def run(given: Augment) -> None:
    from pipelines.augmenting.augment import augment

    result = augment(given.options, given.output, given.verbose)
    print_facts(result, given.verbose)
    made = f"{result['rewritten']:,} of {result['rows']:,} rows now have a rewrite."
    train = ("train", "denosent-base", "--corpus", given.output, "--output", "runs/mine")
    print_ending(made, given.output, train)
