"""cotbert track-sync: send the waiting records in a folder to MLflow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cotbert_core.errors import UserError
from pipelines.reading.data_folder import REFUSED_FILE
from pipelines.recording.artifacts import NAMED
from pipelines.recording.offline_queue import OfflineQueue, find_queues
from pipelines.recording.records import UnknownRunError, is_key
from pipelines.recording.store import connect, no_answer, shown_uri
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import KEYS_FILE, QUEUE_FILES, RESULT_FILE, RUN_FILE

HEADER = ("run", "run id", "sent", "refused", "waiting")


class SyncError(RuntimeError):
    """The store does not answer; the exit status is 1."""


@dataclass(frozen=True)
class Synced:
    """The outcome for a queue: the numbers of records sent, refused and still waiting."""

    folder: Path
    run_id: str | None
    sent: int
    refused: int
    waiting: int
    error: Exception | None = None


def track_sync(folder: Path) -> list[Synced]:
    """Send all waiting records below a folder, parent runs first, until the store fails.

    If it fails, the last row has the error; so has the row of a run that belongs to another store,
    whose records wait. Raises UserError if there are no waiting records.
    """
    queues = find_queues(folder)
    for queue in queues:
        check_links(queue.folder)
    if not queues:
        raise UserError(
            f"nothing waits for MLflow in {str(folder)!r}: give the folder that a job's warning "
            "named, or one above it"
        )
    return list(_send_all(queues))


def check_links(folder: Path) -> None:
    """Raise UserError if a file that sending writes, here or in a folder above, is a link.

    Through a link, a folder from elsewhere could make this process overwrite any file.
    """
    above = [parent for parent in folder.parents if os.path.lexists(parent / KEYS_FILE)]
    names = (*QUEUE_FILES, RUN_FILE, RESULT_FILE)
    written = (parent / name for parent in (folder, *above) for name in names)
    for path in (p for file in written for p in (file, file.with_name(f"{file.name}.partial"))):
        if path.is_symlink():
            raise UserError(
                f"{str(path)!r} is a link to {os.readlink(path)!r}, and sending would write there: "
                "remove the link, or put the file itself in its place"
            )


def check_sent(rows: list[Synced]) -> None:
    """Raise SyncError if the store failed, and UserError if runs belong to another one."""
    last = rows[-1].error if rows else None
    if last is not None and not isinstance(last, UnknownRunError):
        waiting = sum(row.waiting for row in rows)
        raise SyncError(
            f"{no_answer(last)}; {waiting} records still wait: give the same command again to "
            "send them"
        )
    elsewhere = [row for row in rows if isinstance(row.error, UnknownRunError)]
    if elsewhere:
        folders = ", ".join(repr(str(row.folder)) for row in elsewhere)
        raise UserError(
            f"MLflow at {shown_uri()} is not the store of the runs in {folders} "
            f"({elsewhere[0].error}): set MLFLOW_TRACKING_URI to the store where they began"
        )


def _send_all(queues: list[OfflineQueue]) -> Iterator[Synced]:
    client, error = None, None  # the error of a store that does not answer
    for queue in queues:
        run, sent, before = queue.first_run(), 0, len(queue.refused())
        elsewhere: UnknownRunError | None = None
        try:
            client = client or (None if error else connect())
            known = before
            while error is None and (count := queue.send_first(client)):
                now = len(queue.refused())
                sent, known = sent + count * (now == known), now
        except UnknownRunError as unknown:
            elsewhere = unknown
        except Exception as failure:  # the other records stay in the queue
            error = failure
        queue.write_run_id()
        refused = queue.refused()[before:]
        for why in refused[:NAMED]:
            say(f"warning: refused in {queue.folder}: {why}")
        if len(refused) > NAMED:
            say(f"warning: {len(refused) - NAMED} more: see {queue.folder / REFUSED_FILE}")
        run_id = queue.keys().get(run) if is_key(run) else run
        failed = error or elsewhere
        yield Synced(queue.folder, run_id, sent, len(refused), queue.waiting(), failed)


def table_rows(rows: list[Synced], folder: Path) -> list[tuple[str, ...]]:
    """Return the cells of the table that is printed."""
    base = Path(folder).expanduser().absolute()
    return [
        (
            str(row.folder.relative_to(base)),
            row.run_id or "",
            *(f"{count:,}" for count in (row.sent, row.refused, row.waiting)),
        )
        for row in rows
    ]
