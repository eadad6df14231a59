"""cotbert index: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("embeddings", metavar="EMBEDDINGS", help="a folder that embed finished")
    command.add_argument(
        "--format",
        choices=("faiss",),
        default="faiss",
        help="kind of index; faiss writes index.faiss and needs the extra `faiss` (default: faiss)",
    )
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="new folder for the index"
    )
    command.add_argument(
        "--factory",
        default="Flat",
        metavar="STRING",
        help="FAISS's description of the index, e.g. IVF1024,Flat or HNSW32",
    )
    command.add_argument(
        "--sample", type=int, default=100_000, metavar="N", help="rows to train such an index on"
    )
    command.add_argument("--seed", type=int, default=0, help="of the sample")
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.index import index
    from pipelines.searching.options import IndexOptions

    options = IndexOptions(arguments.factory, arguments.sample, arguments.seed)
    print_result(index(arguments.embeddings, arguments.output, options))
