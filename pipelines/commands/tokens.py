"""cotbert tokens and cotbert token-map: their options, and the calls they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments, encoding_option
from pipelines.commands.printing import print_result
from pipelines.runtime.progress import show

HEADER = ("sentence", "top tokens", "after template denoising")


def tokens_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("encoder", metavar="ENCODER", help="a masked language model")
    command.add_argument("sentences", nargs="*", metavar="SENTENCE", help="default: four examples")
    command.add_argument(
        "--template", help="a name or a text; default: a trained folder's own, else PromptBERT's"
    )
    command.add_argument("--top", type=int, default=5, metavar="N", help="tokens shown")
    command.add_argument(
        "--denoise", default="position", choices=("position", "pad"), help="how the bias is made"
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def tokens(arguments: Arguments) -> None:
    from pipelines.templates.mask_predictions import (
        EXAMPLES,
        TokensOptions,
        top_lines,
        top_tokens_of,
    )

    options = TokensOptions(
        arguments.encoder,
        tuple(arguments.sentences) or EXAMPLES,
        arguments.template,
        arguments.top,
        arguments.denoise,
    )
    lines = [HEADER, *top_lines(top_tokens_of(options))]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    lines.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2]))
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        show("  ".join(cells).rstrip())


def map_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("encoder", metavar="ENCODER", help="a folder or an encoder NAME")
    command.add_argument(
        "--corpus",
        metavar="TEXT",
        help="a file or folder of text to count tokens in; default: this package's graded pairs",
    )
    command.add_argument("--text-column", default="text", help="of csv, tsv, jsonl, parquet")
    encoding_option(command, "--corpus")
    command.add_argument(
        "--table",
        default="input",
        choices=("input", "head"),
        help="the static token embeddings, or the output weights of the MLM head",
    )
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="new folder for page and numbers"
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def token_map(arguments: Arguments) -> None:
    from pipelines.templates.mask_predictions import TokenMapOptions, token_map

    options = TokenMapOptions(
        arguments.encoder,
        arguments.corpus,
        arguments.table,
        arguments.text_column,
        arguments.encoding,
    )
    print_result(token_map(options, arguments.output))
