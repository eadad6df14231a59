"""cotbert embed: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.commands.printing import print_result
from pipelines.embedding.options import EmbedOptions
from pipelines.options import shared


@dataclass(frozen=True, kw_only=True)
class Embed:
    options: EmbedOptions
    output: shared.OutputFolder
    verbose: shared.Verbose = False


def run(given: Embed) -> None:
    from pipelines.embed import embed

    print_result(embed(given.options, given.output, given.verbose))
