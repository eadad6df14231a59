"""cotbert quickstart: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", type=Path, metavar="DIR", help="default: runs/quickstart-TIME")
    command.add_argument("--packages", metavar="NAME,...", help="whose docstrings to learn from")
    command.add_argument("--sentences", type=int, metavar="N", help="most sentences of the corpus")
    command.add_argument("--steps", type=int, metavar="N", help="training steps")
    command.add_argument("--verbose", action="store_true", help="show Ray's own output too")


def run(arguments: Arguments) -> None:
    from datetime import datetime

    from pipelines.quickstart import quickstart

    name = f"quickstart-{datetime.now():%Y%m%d-%H%M%S}"
    given = {name: getattr(arguments, name) for name in ("packages", "sentences", "steps")}
    changes = {name: value for name, value in given.items() if value is not None}
    quickstart(arguments.output or Path("runs") / name, arguments.verbose, **changes)
