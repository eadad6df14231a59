"""cotbert embed: its options, and the call of its job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.errors import counted
from pipelines.commands.printing import print_facts
from pipelines.embedding.options import EmbedOptions
from pipelines.options import shared
from pipelines.runtime.ending import print_ending, rows_again
from pipelines.runtime.progress import say


@dataclass(frozen=True, kw_only=True)
class Embed:
    options: EmbedOptions
    output: shared.JobFolder

    def run(self) -> None:
        from cotbert_core.evaluation.passages import PASSAGE_WORDS
        from pipelines.embedding.embed import embed

        result = embed(self.options, self.output)
        print_facts(result)
        if result["truncated"]:
            advice = (
                ", besides any passages: --on-long split-mean averages all their parts"
                if self.options.passages
                else f": --passages {PASSAGE_WORDS} adds vectors of all their parts, --on-long "
                "split-mean averages these"
            )
            say(
                f"note: {result['truncated']:,} of {result['rows']:,} texts have more tokens than "
                f"the model reads, and only their beginning was embedded{advice}"
            )
        print_ending(summary(result, self.options.keep_gone), self.output, _search_command(self))


def _search_command(given: Embed) -> tuple[str | Path, ...]:
    """Return the words that search the vectors and show the texts, kept or read again."""
    options = given.options
    kept = options.text_column in options.keep
    words = rows_again(() if kept else ("--text", *options.inputs), options.text_column)
    return ("search", given.output, "YOUR QUERY", *words)


def summary(result: Mapping[str, Any], keep_gone: bool) -> str:
    """Return a sentence with the numbers of rows. keep_gone: whether rows that are gone from the
    input are kept."""
    skipped = f"{result['skipped']:,} skipped."
    if "taken_over" not in result:
        return f"{counted(result['rows'], 'row')} embedded, {skipped}"
    fate = f" and {'kept' if keep_gone else 'dropped'}" if result["gone"] else ""
    return (
        f"{counted(result['new'] + result['changed'], 'row')} embedded ({result['new']:,} new, "
        f"{result['changed']:,} changed), {result['taken_over']:,} taken over, "
        f"{result['gone']:,} gone from the input{fate}, {skipped}"
    )
