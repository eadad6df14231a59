"""cotbert search: its options, and the call of its job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cotbert_core.messages.printable import shortened
from pipelines.commands.printing import print_texts
from pipelines.options.declare import OUTPUT, Option
from pipelines.runtime.progress import print_output
from pipelines.searching.options import SearchOptions

if TYPE_CHECKING:
    from pipelines.searching.search import Match

# Characters of a text that are printed without --json, about four lines: a text may be a long file.
MOST_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class Search:
    options: SearchOptions
    json: bool = Option("print one JSON object for each query", group=OUTPUT).field(False)

    def run(self) -> None:
        from pipelines.searching.search import search

        queries = self.options.queries
        show_matches = _print_json if self.json else _print_table
        for query, matches in zip(queries, search(self.options), strict=True):
            show_matches(query, matches, len(queries) > 1)


def _print_json(query: str, matches: Sequence[Match], _: bool) -> None:
    rows = [dict(vars(match)) for match in matches]
    for row in rows:
        for key in ("passage", "place"):
            if row[key] is None:
                del row[key]
    print_output(json.dumps({"query": query, "matches": rows}, ensure_ascii=False))


def _print_table(query: str, matches: Sequence[Match], several: bool) -> None:
    """Print each match on a line with its text or passage, if texts are available."""
    if several:
        print_output(f"query: {' '.join(query.split())}")
    rows = [("rank", "score", "place" if any(m.place for m in matches) else "id", "text")]
    for m in matches:
        text = " ".join((m.passage or shortened(m.text or "", MOST_CHARACTERS)).split())
        rows.append((str(m.rank), f"{m.score:.4f}", m.place or str(m.id), text))
    shown = any(match.text is not None for match in matches)
    print_texts([row if shown else row[:-1] for row in rows])
