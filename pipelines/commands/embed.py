"""cotbert embed: its options, and the call they become."""

from __future__ import annotations

import argparse

from pipelines.commands.options import (
    Arguments,
    encoding_option,
    job_options,
    names_of,
    reading_options,
)
from pipelines.commands.printing import print_result
from pipelines.embedding.options import BACKENDS, CALIBRATION_ROWS, DTYPES, ON_LONG


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model",
        metavar="MODEL",
        help="a folder (a model, or a training run's output), an encoder NAME, or "
        "models:/NAME@ALIAS, models:/NAME/VERSION or runs:/ID/NAME of MLflow",
    )
    command.add_argument(
        "--input", nargs="+", required=True, metavar="PATH", help="as for prepare, or a corpus"
    )
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    encoding_option(command, "the input")
    command.add_argument(
        "--id-column",
        metavar="COL",
        help="ids of the rows, whole numbers or text; default: the whole numbers `id` of Parquet "
        "files, else row numbers",
    )
    command.add_argument(
        "--keep", metavar="COL,COL", help="columns of the input to hand on with the vectors"
    )
    command.add_argument("--dtype", default="float32", choices=DTYPES, help="of the vectors")
    command.add_argument("--normalize", action="store_true", help="unit length")
    command.add_argument(
        "--truncate-dim",
        type=int,
        metavar="N",
        help="the first N dimensions alone, of unit length again where the whole vector was",
    )
    command.add_argument(
        "--on-long",
        default="truncate",
        choices=ON_LONG,
        help="of a text of more tokens than the model reads: embed its beginning, list it among "
        "the skipped rows, or embed pieces and take the mean weighted by tokens",
    )
    command.add_argument(
        "--calibration-rows",
        type=int,
        default=CALIBRATION_ROWS,
        metavar="N",
        help="of int8: first rows of the input whose largest values set the scale",
    )
    command.add_argument(
        "--backend",
        default="torch",
        choices=BACKENDS,
        help="what runs the encoder; openvino, an extra, is faster on CPUs",
    )
    command.add_argument(
        "--attention",
        default="auto",
        choices=("auto", "plain", "eager", "sdpa", "unpadded"),
        help="unpadded: rows are packed, for GPUs, on which it has not been measured yet",
    )
    command.add_argument("--workers", type=int, help="default: one a GPU, or one a machine")
    reading_options(command)
    job_options(command, "new folder for the vectors, or that of the same job to go on with")


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
        names_of(arguments.keep),
        arguments.truncate_dim,
        arguments.on_long,
        arguments.calibration_rows,
        arguments.backend,
        arguments.attention,
        arguments.encoding,
    )
    print_result(embed(options, arguments.output, arguments.verbose))
