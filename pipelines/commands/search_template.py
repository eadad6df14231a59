"""cotbert search-template: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments
from pipelines.commands.printing import print_result
from pipelines.runtime.progress import show

# Rows of a stage in the printed table; the file has them all.
SHOWN = 20


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("encoder", metavar="ENCODER", help="a folder or an encoder NAME")
    dev = command.add_mutually_exclusive_group()
    dev.add_argument("--senteval", type=Path, metavar="DIR", help="score on STS-B dev")
    dev.add_argument(
        "--dev-pairs",
        type=Path,
        metavar="FILE",
        help="score on these pairs (tab-separated: score, sentence1, sentence2); without either, "
        "on the pairs in this package",
    )
    command.add_argument(
        "--relations",
        type=Path,
        metavar="FILE",
        help="what may stand between sentence and mask, one a line, instead of the built-in list",
    )
    command.add_argument(
        "--prefixes",
        type=Path,
        metavar="FILE",
        help="what may stand before and around the sentence, one a line, with [X] for the "
        "sentence where something closes it, instead of the built-in list",
    )
    command.add_argument(
        "--templates", type=Path, metavar="FILE", help="score just these, one a line"
    )
    command.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="of relations, then prefixes"
    )
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoder"
    )
    command.add_argument("--resume", action="store_true", help="go on with an interrupted search")
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="new folder for the scores"
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.templates.template_search import (
        TemplateSearchOptions,
        search_template,
        shown_table,
    )

    options = TemplateSearchOptions(
        arguments.encoder,
        arguments.senteval,
        arguments.dev_pairs,
        arguments.relations,
        arguments.prefixes,
        arguments.templates,
        arguments.rounds,
        arguments.precision,
    )
    result = search_template(options, arguments.output, resume=arguments.resume)
    show(shown_table(arguments.output, SHOWN), end="\n\n")
    print_result(result)
