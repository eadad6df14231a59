"""cotbert generate-templates: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="T5_MODEL", help="a folder or a hub name")
    command.add_argument(
        "--definitions",
        required=True,
        type=Path,
        metavar="FILE",
        help="one a line, `word: definition` or with a tab between",
    )
    command.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="new file, a template a line"
    )
    command.add_argument("--count", type=int, default=500, metavar="N", help="templates wanted")
    command.add_argument(
        "--beam", type=int, default=100, metavar="N", help="outputs followed at a time"
    )
    command.add_argument(
        "--max-tokens", type=int, default=20, metavar="N", help="of a template, at most"
    )
    command.add_argument(
        "--examples", type=int, metavar="N", help="definitions drawn from the file; default: all"
    )
    command.add_argument("--seed", type=int, default=0, help="of that draw")
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.templates.template_generation import GenerateOptions, generate_templates

    options = GenerateOptions(
        arguments.model,
        arguments.definitions,
        arguments.count,
        arguments.beam,
        arguments.max_tokens,
        arguments.examples,
        arguments.seed,
    )
    print_result(generate_templates(options, arguments.output))
