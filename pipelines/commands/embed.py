"""cotbert embed: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_facts
from pipelines.embedding.options import EmbedOptions
from pipelines.options import shared
from pipelines.runtime.ending import print_ending


@dataclass(frozen=True, kw_only=True)
class Embed:
    options: EmbedOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Embed) -> None:
    from pipelines.embed import embed

    result = embed(given.options, given.output, given.verbose)
    print_facts(result, given.verbose)
    made = f"{result['rows']:,} rows embedded, {result['skipped']:,} skipped."
    print_ending(made, given.output, ("search", given.output, "YOUR QUERY"))
