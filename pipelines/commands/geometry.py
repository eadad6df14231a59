"""cotbert geometry: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments, encoding_option


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a trained folder or an encoder NAME, read by its own way; or NAME,template=TEMPLATE, "
        "or NAME,readout=mask|cls|mean|last|first-last|static|top-tokens",
    )
    data = command.add_mutually_exclusive_group()
    data.add_argument("--senteval", type=Path, metavar="DIR", help="STS-B test of this folder")
    data.add_argument(
        "--dev-pairs",
        type=Path,
        metavar="FILE",
        help="graded pairs, the test half if there are halves; default: this package's",
    )
    command.add_argument(
        "--corpus",
        metavar="TEXT",
        help="a file or folder of text for the anisotropy; default: the sentences of the pairs",
    )
    command.add_argument(
        "--sentences", type=int, default=100_000, metavar="N", help="most sentences of the corpus"
    )
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    encoding_option(command, "--corpus")
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoders"
    )
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="new folder for page and numbers"
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.geometry import HEADER, GeometryOptions, geometry, table_rows
    from pipelines.runtime.progress import show, table

    options = GeometryOptions(
        tuple(arguments.models),
        arguments.senteval,
        arguments.dev_pairs,
        arguments.corpus,
        arguments.sentences,
        arguments.text_column,
        arguments.precision,
        arguments.encoding,
    )
    show(table(table_rows(geometry(options, arguments.output)), HEADER))
