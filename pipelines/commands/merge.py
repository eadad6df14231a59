"""cotbert merge: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_facts
from pipelines.options import shared
from pipelines.options.jobs import MergeOptions
from pipelines.runtime.ending import print_ending


@dataclass(frozen=True, kw_only=True)
class Merge:
    options: MergeOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Merge) -> None:
    from pipelines.adapting.merging import merge_tracked

    result = merge_tracked(given.options, given.output)
    print_facts(result, given.verbose)
    asked = ("evaluate", given.options.first, given.output)
    print_ending("The average of both encoders is written.", given.output, asked)
