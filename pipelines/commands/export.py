"""cotbert export: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.options.jobs import ExportOptions


@dataclass(frozen=True, kw_only=True)
class Export:
    options: ExportOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Export) -> None:
    from pipelines.export import export

    print_result(export(given.options, given.output))
