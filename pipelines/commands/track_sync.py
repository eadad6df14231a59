"""cotbert track-sync: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pipelines.options.declare import Option


@dataclass(frozen=True, kw_only=True)
class TrackSync:
    folder: Annotated[
        Path,
        Option(
            "send the records in this folder of a job, or in all folders below it, to the store "
            "of MLFLOW_TRACKING_URI",
            "DIR",
            positional=True,
        ),
    ]

    def run(self) -> None:
        from pipelines.recording.track_sync import HEADER, check_sent, table_rows, track_sync
        from pipelines.runtime.progress import print_output, table

        rows = track_sync(self.folder)
        print_output(table(table_rows(rows, self.folder), HEADER))
        check_sent(rows)
