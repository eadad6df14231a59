"""cotbert merge: its options, and the call they become."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.options.jobs import MergeOptions


@dataclass(frozen=True, kw_only=True)
class Merge:
    options: MergeOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Merge) -> None:
    from pipelines.adapting.merging import merge_tracked

    print_result(merge_tracked(given.options, given.output))
