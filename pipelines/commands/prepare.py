"""cotbert prepare: its options, and the call they become."""

from __future__ import annotations

import argparse

from pipelines.commands.options import Arguments, job_options
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="PATH",
        help="files (txt csv tsv jsonl parquet), folders, globs, docstrings:PACKAGE,...",
    )
    command.add_argument("--encoder", required=True, metavar="NAME", help="whose tokenizer to use")
    command.add_argument("--max-length", type=int, default=32, help="tokens kept of a sentence")
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    command.add_argument("--sample", type=int, metavar="N", help="keep N sentences, same every run")
    command.add_argument(
        "--on-invalid",
        default="drop",
        choices=("drop", "fail"),
        help="rows that are no UTF-8, no JSON or no text: count and drop them, or stop",
    )
    job_options(command, "new folder for the corpus")


def run(arguments: Arguments) -> None:
    from pipelines.prepare import PrepareOptions, prepare

    options = PrepareOptions(
        tuple(arguments.input),
        arguments.encoder,
        arguments.max_length,
        arguments.text_column,
        arguments.sample,
        arguments.on_invalid,
    )
    print_result(prepare(options, arguments.output, arguments.verbose))
