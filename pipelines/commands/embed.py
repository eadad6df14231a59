"""cotbert embed: its options, and the call they become."""

from __future__ import annotations

import argparse

from pipelines.commands.options import Arguments, job_options, reading_options
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a trained folder or an encoder NAME")
    command.add_argument(
        "--input", nargs="+", required=True, metavar="PATH", help="as for prepare, or a corpus"
    )
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    command.add_argument(
        "--id-column", help="whole numbers; default: `id` of Parquet files, else row numbers"
    )
    command.add_argument(
        "--dtype", default="float32", choices=("float32", "float16"), help="of the vectors"
    )
    command.add_argument("--normalize", action="store_true", help="unit length")
    command.add_argument("--workers", type=int, help="default: one a GPU, or one a machine")
    reading_options(command)
    job_options(command, "new folder for the vectors")


def run(arguments: Arguments) -> None:
    from pipelines.embed import EmbedOptions, embed

    options = EmbedOptions(
        arguments.model,
        tuple(arguments.input),
        arguments.text_column,
        arguments.id_column,
        arguments.dtype,
        arguments.normalize,
        arguments.workers,
        arguments.template,
        arguments.readout,
        arguments.precision,
    )
    print_result(embed(options, arguments.output, arguments.verbose))
