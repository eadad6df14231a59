"""cotbert track-sync: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="folder of a job, or one above; the store is MLFLOW_TRACKING_URI's",
    )
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from pipelines.recording.track_sync import HEADER, check_sent, table_rows, track_sync
    from pipelines.runtime.progress import show, table

    rows = track_sync(arguments.folder)
    show(table(table_rows(rows, arguments.folder), HEADER))
    check_sent(rows)
