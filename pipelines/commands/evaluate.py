"""cotbert evaluate: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments, reading_options
from pipelines.commands.printing import print_scores


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a trained folder or an encoder NAME")
    command.add_argument("--senteval", type=Path, metavar="DIR", help="a SentEval folder")
    command.add_argument(
        "--tasks", help="sts (the default), or some of STS12..STS16,STS-B,SICK-R with commas"
    )
    command.add_argument("--allow-missing", action="store_true", help="skip tasks not there")
    command.add_argument(
        "--dev-pairs", type=Path, metavar="FILE", help="graded pairs; default: this package's"
    )
    reading_options(command)
    command.add_argument("--output", type=Path, metavar="FILE", help="JSON file to write")
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.evaluate import EvaluateOptions, evaluate

    options = EvaluateOptions(
        arguments.model,
        arguments.senteval,
        arguments.dev_pairs,
        arguments.tasks,
        arguments.allow_missing,
        arguments.template,
        arguments.readout,
        arguments.precision,
    )
    print_scores(evaluate(options, arguments.output))
