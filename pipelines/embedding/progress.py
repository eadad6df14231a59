"""Show the progress of `cotbert embed` from the records that workers write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.embedding.blocks import BlockLedger, expected_rows
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.polling import polled
from pipelines.runtime.progress import Progress


@contextmanager
def shown_progress(plan: ReadPlan, ledger: BlockLedger) -> Iterator[None]:
    """Show progress during the `with` block; afterwards the ledger holds all records.

    A block range may be a file of a million rows, so its task returns too late to show progress.
    """
    progress = Progress("embed", expected_rows(plan), "rows")
    progress.start_at(ledger.counts["read"])

    def update() -> None:
        if ledger.update():  # without new records the last line would be repeated
            _show(progress, ledger)

    with polled(update):
        yield
    if progress.total is None:
        _show(progress, ledger, always=True)


def _show(progress: Progress, ledger: BlockLedger, always: bool = False) -> None:
    skipped = sum(ledger.skipped.values())
    details = [f"{ledger.rate:,.0f} rows/s"] if ledger.new_rows else []
    details += [f"{skipped:,} skipped"] if skipped else []
    progress.show(ledger.counts["read"], "  ".join(details), always=always)
