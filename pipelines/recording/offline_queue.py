"""A queue of records for MLflow: untracked.jsonl in a job's output folder, one record per line.

A run that does not exist in the store yet has a key; untracked_run.json maps keys to run ids, so
child runs, whose folders are below, find their parent's. Several processes may use a folder: each
locks it while it processes a record.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cotbert_core.files import read_json, write_json, write_text
from pipelines.reading.data_folder import REFUSED_FILE, UNTRACKED_FILE
from pipelines.recording.artifacts import RefusedError
from pipelines.recording.records import Record, create_run, is_key, send
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import KEYS_FILE, RESULT_FILE, RUN_FILE
from pipelines.storage.paths import locked_folder

# The keys of the run's id in result.json; the second one is a sweep's.
RUN_ID_KEYS = "mlflow_run_id", "mlflow_parent_run_id"
# MLflow's limit of metrics in a batch.
BATCH_METRICS = 1000


class OfflineQueue:
    """The waiting records of a folder, and the keys of its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.path = self.folder / UNTRACKED_FILE

    @property
    def empty(self) -> bool:
        return not self.path.exists()

    def waiting(self) -> int:
        """The number of records in the queue."""
        return 0 if self.empty else self.path.read_bytes().count(b"\n")

    def add(self, record: Record) -> None:
        """Append a record."""
        with locked_folder(self.folder):
            _append(self.path, record)

    def keys(self) -> dict[str, str | None]:
        """Return the keys of this folder's runs, oldest first, with their run ids."""
        file = self.folder / KEYS_FILE
        return dict(read_json(file)) if file.is_file() else {}

    def latest_run(self) -> tuple[str | None, str | None]:
        """Return the key and the run id of the run that began here last."""
        return next(reversed(self.keys().items()), (None, None))

    def record_run_id(self, key: str, run_id: str | None) -> None:
        """Store a key's run id, and add the id to the job's files if it is missing there."""
        write_json(self.folder / KEYS_FILE, self.keys() | {key: run_id})
        self.write_run_id()

    def write_run_id(self) -> None:
        """Add the run id to the job's files if they were written before it was known."""
        _, run_id = self.latest_run()
        if run_id is None:
            return
        file, result = self.folder / RUN_FILE, self.folder / RESULT_FILE
        if file.is_file() and not file.read_text(encoding="utf-8"):
            write_text(file, run_id)
        if result.is_file():
            values = read_json(result)
            unknown = [k for k in RUN_ID_KEYS if k in values and values[k] is None]
            if unknown:
                write_json(result, values | dict.fromkeys(unknown, run_id))

    def send_first(self, client: Any) -> int:
        """Send the first record, or the first batch, and return the number of records sent.

        Records that the store refuses are moved to another file with the reason.
        """
        with locked_folder(self.folder):
            record, count, size = self._first()
            if record is not None:
                try:
                    self._send(client, record)
                except RefusedError as error:
                    self._refuse(client, record, str(error))
            if size:
                self._remove(size)
            return count

    def first_run(self) -> str:
        """Return the id or key of the first record's run."""
        record, _, _ = self._first()
        return str(record["run"]) if record else ""

    def refused(self) -> list[str]:
        """Return the reason of each record that the store refused, oldest first."""
        file = self.folder / REFUSED_FILE
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [str((_read(line) or {}).get("refused", "")) for line in lines]

    def _send(self, client: Any, record: Record) -> None:
        if record["kind"] == "create":
            parent = self.run_id_of(client, record["parent"])
            if record["parent"] and parent is None:
                say(
                    f"warning: the parent run of {self.folder} was not found in the folders above, "
                    "so its run has no parent"
                )
            self.record_run_id(record["run"], create_run(client, record, parent))
        else:
            run_id = self.run_id_of(client, record["run"])
            if run_id is None:
                raise RefusedError(
                    f"its run {record['run']} is unknown here and in the folders above"
                )
            send(client, run_id, record, self.folder)

    def run_id_of(self, client: Any, run: str | None) -> str | None:
        """Return the id of a run given by id or key; a key's run is created if necessary.

        Returns None for a key that is neither in this folder nor in those above.
        """
        if not is_key(run):
            return run
        for place in (self.folder, *self.folder.parents):
            other = OfflineQueue(place)
            keys = other.keys()
            if run not in keys:
                continue
            while other.folder != self.folder and keys[run] is None:
                if not other.send_first(client):
                    return None
                keys = other.keys()
            return keys[run]
        return None

    def _refuse(self, client: Any, record: Record, why: str) -> None:
        """Move a refused record to another file; send its params and tags that are valid alone."""
        values = record.get("values", {})
        if len(values) < 2:
            _append(self.folder / REFUSED_FILE, {**record, "refused": why})
            return
        for key, value in values.items():
            single = {**record, "values": {key: value}}
            try:
                self._send(client, single)
            except RefusedError as error:
                self._refuse(client, single, str(error))

    def _first(self) -> tuple[Record | None, int, int]:
        """Return the first record, merged with following metrics, and its lines and bytes."""
        first: Record | None = None
        count = size = 0
        if self.empty:
            return first, count, size
        with self.path.open("rb") as file:
            for line in file:
                record = _read(line)
                if record is not None and first is not None:
                    if not _one_batch(first, record):
                        break
                    first["rows"] += record["rows"]
                first = first or record
                count, size = count + 1, size + len(line)
        return first, count, size

    def _remove(self, size: int) -> None:
        rest = self.path.read_bytes()[size:]
        if not rest:
            self.path.unlink()
            return
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_bytes(rest)
        partial.replace(self.path)


def find_queues(folder: Path) -> list[OfflineQueue]:
    """Return the queues with records below a folder, parents before children."""
    files = Path(folder).expanduser().absolute().rglob(UNTRACKED_FILE)
    return [OfflineQueue(f.parent) for f in sorted(files, key=lambda f: (len(f.parts), f))]


def _append(path: Path, record: Record) -> None:
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a killed process left an incomplete line
                file.write(b"\n")
        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _read(line: bytes) -> Record | None:
    try:
        return dict(json.loads(line))
    except ValueError:  # an incomplete line of a killed process
        return None


def _one_batch(first: Record, record: Record) -> bool:
    return (
        first["kind"] == record["kind"] == "metrics"
        and first["run"] == record["run"]
        and len(first["rows"]) + len(record["rows"]) <= BATCH_METRICS
    )
