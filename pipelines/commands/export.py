"""cotbert export: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a trained folder or an encoder NAME")
    command.add_argument(
        "--format",
        required=True,
        choices=("onnx", "folder"),
        help="a graph for ONNX Runtime, or safetensors for sentence-transformers and transformers",
    )
    command.add_argument("--template", help="read at this template's last mask (a name or a text)")
    command.add_argument("--readout", choices=("mask", "cls", "mean"), help="how a vector is read")
    command.add_argument(
        "--allow-pickle",
        action="store_true",
        help="read pytorch_model.bin where MODEL has no safetensors; only if you trust it",
    )
    command.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="new folder for the model"
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.export import ExportOptions, export

    options = ExportOptions(
        arguments.model,
        arguments.format,
        arguments.template,
        arguments.readout,
        arguments.allow_pickle,
    )
    print_result(export(options, arguments.output))
