"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

Arguments = argparse.Namespace


def job_options(command: argparse.ArgumentParser, output: str) -> None:
    command.add_argument("--output", required=True, type=Path, metavar="DIR", help=output)
    command.add_argument("--verbose", action="store_true", help="show Ray's own output too")


def reading_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--template", help="read at this template's last mask (a name or a text)")
    command.add_argument("--readout", choices=("mask", "cls", "mean"), help="how a vector is read")
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoder"
    )
