"""cotbert prepare: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.commands.printing import print_facts
from pipelines.options import shared
from pipelines.preparing.options import PrepareOptions
from pipelines.runtime.ending import print_ending
from pipelines.runtime.progress import print_output, table


@dataclass(frozen=True, kw_only=True)
class Prepare:
    options: PrepareOptions
    output: shared.JobFolder
    verbose: shared.Verbose = False


def run(given: Prepare) -> None:
    from pipelines.prepare import prepare
    from pipelines.storage.corpus import Corpus

    result = prepare(given.options, given.output, given.verbose)
    print_output(rows_table(result), end="\n\n")
    print_facts(result, given.verbose)
    made = f"{result['rows']:,} sentences are ready, of {result['rows_read']:,} rows read."
    recipe = "documents" if given.options.documents else "simcse-base"
    if "negative" in Corpus.open(given.output).columns:  # triples, which may have been recognized
        recipe = "simcse-supervised"
    encoder = ("--encoder", given.options.encoder, "--output", "runs/mine")
    print_ending(made, given.output, ("train", recipe, "--corpus", given.output, *encoder))


def rows_table(result: dict[str, Any]) -> str:
    """Return a table for a terminal of the rows that were read: kept, and dropped by reason."""
    from pipelines.preparing.report import row_counts

    return table(row_counts(result), ("rows", "number", "share"))
