"""cotbert prepare: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.preparing.options import PrepareOptions
from pipelines.runtime.progress import print_output


@dataclass(frozen=True, kw_only=True)
class Prepare:
    options: PrepareOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Prepare) -> None:
    from pipelines.prepare import prepare

    result = prepare(given.options, given.output, given.verbose)
    print_output(rows_table(result), end="\n\n")
    print_result(result)


def rows_table(result: dict[str, Any]) -> str:
    """Return a table for a terminal of the rows that were read: kept, and dropped by reason."""
    from pipelines.preparing.report import row_counts
    from pipelines.runtime.progress import table

    return table(row_counts(result), ("rows", "number", "share"))
