"""cotbert quickstart: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.options import shared
from pipelines.options.jobs import QuickstartOptions


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    options: QuickstartOptions
    output: Path | None = replace(shared.OUTPUT_FOLDER, default="runs/quickstart-TIME").field(None)

    def run(self) -> None:
        from datetime import datetime

        from pipelines.adapting.quickstart import quickstart

        name = f"quickstart-{datetime.now():%Y%m%d-%H%M%S}"
        quickstart(self.output or Path("runs") / name, self.options)
