"""cotbert search: its options, and the call they become."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.commands.options import Arguments, encoding_option
from pipelines.commands.printing import print_texts
from pipelines.runtime.progress import show

if TYPE_CHECKING:
    from pipelines.search import Match


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("embeddings", metavar="EMBEDDINGS", help="a folder that embed finished")
    command.add_argument("queries", nargs="+", metavar="QUERY", help="a text to look for")
    command.add_argument("--top", type=int, default=10, metavar="K", help="rows for each query")
    command.add_argument(
        "--text",
        nargs="+",
        default=[],
        metavar="PATH",
        help="all of the input that embed had, to show its texts; default: the column that embed "
        "kept, if it did",
    )
    command.add_argument("--text-column", default="text", help="of the input, or kept by embed")
    encoding_option(command, "--text, where it is not what embed was given")
    command.add_argument(
        "--model", metavar="MODEL", help="where the model lies now, if it has been moved"
    )
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoder"
    )
    command.add_argument("--json", action="store_true", help="print a JSON object for each query")
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.search import SearchOptions, search

    options = SearchOptions(
        arguments.embeddings,
        tuple(arguments.queries),
        arguments.top,
        tuple(arguments.text),
        arguments.text_column,
        arguments.model,
        arguments.precision,
        arguments.encoding,
    )
    show = _print_json if arguments.json else _print_table
    for query, matches in zip(options.queries, search(options), strict=True):
        show(query, matches, len(options.queries) > 1)


def _print_json(query: str, matches: Sequence[Match], _: bool) -> None:
    rows = [vars(match) for match in matches]
    show(json.dumps({"query": query, "matches": rows}, ensure_ascii=False))


def _print_table(query: str, matches: Sequence[Match], several: bool) -> None:
    """Texts on one line each; their column is left out where none is at hand."""
    if several:
        show(f"query: {' '.join(query.split())}")
    rows = [("rank", "score", "id", "text")]
    rows += [
        (str(m.rank), f"{m.score:.4f}", str(m.id), " ".join((m.text or "").split()))
        for m in matches
    ]
    shown = any(match.text is not None for match in matches)
    print_texts([row if shown else row[:-1] for row in rows])
