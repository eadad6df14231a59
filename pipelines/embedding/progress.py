"""Show the progress of `cotbert embed` from the records that workers write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.embedding.blocks import BlockLedger, expected_rows
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import Progress

POLL_SECONDS = 0.5


@contextmanager
def shown_progress(plan: ReadPlan, ledger: BlockLedger) -> Iterator[None]:
    """Show progress during the `with` block; afterwards the ledger holds all records.

    A block range may be a file of a million rows, so its task returns too late to show progress.
    """
    progress = Progress("embed", expected_rows(plan), "rows")
    progress.start_at(ledger.counts["read"])
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(POLL_SECONDS):
            if ledger.update():  # without new records the last line would be repeated
                _show(progress, ledger)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if ledger.update() or progress.total is None:
            _show(progress, ledger, always=True)


def _show(progress: Progress, ledger: BlockLedger, always: bool = False) -> None:
    skipped = sum(ledger.skipped.values())
    details = [f"{ledger.rate:,.0f} rows/s"] if ledger.fresh else []
    details += [f"{skipped:,} skipped"] if skipped else []
    progress.show(ledger.counts["read"], "  ".join(details), always=always)
