"""cotbert track-sync: send to MLflow what waits in the outboxes below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cotbert_core.errors import UserError
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.store import NAMED, UnknownRunError, connect, is_key, reason, shown_uri
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import (
    KEYS_FILE,
    OUTBOX_FILES,
    REFUSED_FILE,
    RESULT_FILE,
    RUN_FILE,
    UNTRACKED_FILE,
)

HEADER = ("run", "run id", "sent", "refused", "waiting")


class SyncError(RuntimeError):
    """The store does not answer: exit status 1."""


@dataclass(frozen=True)
class Synced:
    """What became of an outbox: records sent, refused by the store (kept aside) and waiting."""

    folder: Path
    run_id: str | None
    sent: int
    refused: int
    waiting: int
    error: Exception | None = None


def track_sync(folder: Path) -> list[Synced]:
    """Send all that waits below the folder, parents first, until the store fails.

    The last row then has the error. UserError when nothing waits there, or the store is another
    one than that of the runs.
    """
    outboxes = find(folder)
    for outbox in outboxes:
        check_links(outbox.folder)
    if not outboxes:
        raise UserError(
            f"nothing waits for MLflow in {str(folder)!r}: give the folder that a job's warning "
            "named, or one above it"
        )
    return list(_send_all(outboxes))


def find(folder: Path) -> list[OfflineQueue]:
    """The outboxes below a folder in which something waits, parents before children."""
    files = Path(folder).expanduser().absolute().rglob(UNTRACKED_FILE)
    return [OfflineQueue(f.parent) for f in sorted(files, key=lambda f: (len(f.parts), f))]


def check_links(folder: Path) -> None:
    """UserError when a file that sending writes, here or in a folder above, is a link.

    A folder from elsewhere could have any file of this machine written through it.
    """
    above = [place for place in folder.parents if os.path.lexists(place / KEYS_FILE)]
    names = (*OUTBOX_FILES, RUN_FILE, RESULT_FILE)
    written = (place / name for place in (folder, *above) for name in names)
    for path in (p for file in written for p in (file, file.with_name(f"{file.name}.partial"))):
        if path.is_symlink():
            raise UserError(
                f"{str(path)!r} is a link to {os.readlink(path)!r}, and sending would write there: "
                "remove the link, or put the file itself in its place"
            )


def check_sent(rows: list[Synced]) -> None:
    """SyncError when the store failed on the way."""
    if rows and rows[-1].error is not None:
        waiting = sum(row.waiting for row in rows)
        raise SyncError(
            f"MLflow at {shown_uri()} did not answer ({reason(rows[-1].error)}); {waiting} "
            "records are kept, and the same command sends them"
        )


def _send_all(outboxes: list[OfflineQueue]) -> Iterator[Synced]:
    client, error = None, None
    for outbox in outboxes:
        run, sent, refused = outbox.first_run(), 0, outbox.refused()
        try:
            client = client or (None if error else connect())
            while error is None and (count := outbox.send_first(client)):
                sent += count
        except UnknownRunError as unknown:
            raise UserError(
                f"MLflow at {shown_uri()} is not the store of the run in "
                f"{str(outbox.folder)!r} ({unknown}): set MLFLOW_TRACKING_URI to the one where it "
                "began"
            ) from None
        except Exception as failure:  # whatever the store does, the rest is kept
            error = failure
        outbox.settle()
        _name_refused(outbox, refused)
        refused = outbox.refused() - refused
        run_id = outbox.keys().get(run) if is_key(run) else run
        yield Synced(outbox.folder, run_id, sent - refused, refused, outbox.waiting(), error)


def _name_refused(outbox: OfflineQueue, before: int) -> None:
    """Say which records were refused now, and why."""
    reasons = outbox.reasons()[before:]
    for why in reasons[:NAMED]:
        say(f"warning: refused in {outbox.folder}: {why}")
    if len(reasons) > NAMED:
        say(f"warning: {len(reasons) - NAMED} more: see {outbox.folder / REFUSED_FILE}")


def table_rows(rows: list[Synced], folder: Path) -> list[tuple[str, ...]]:
    """Cells of the table that is printed."""
    base = Path(folder).expanduser().absolute()
    return [
        (
            str(row.folder.relative_to(base)),
            row.run_id or "",
            *(f"{count:,}" for count in (row.sent, row.refused, row.waiting)),
        )
        for row in rows
    ]
