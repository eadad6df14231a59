"""What waits for MLflow: untracked.jsonl in a job's output folder, a record a line, in order.

A run that the store does not know yet goes by a key; untracked_run.json says which run id each key
became, so that its children, whose folders lie below, find it. Several processes may use a folder:
each takes the folder's lock for as long as one record takes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cotbert_core.files import read_json, write_json, write_text
from pipelines.recording.store import Record, RefusedError, create_run, is_key, send
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import (
    KEYS_FILE,
    REFUSED_FILE,
    RESULT_FILE,
    RUN_FILE,
    UNTRACKED_FILE,
)

# MLflow's most in a batch.
BATCH_METRICS = 1000


class OfflineQueue:
    """The records that wait in a folder, and the keys of its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.path = self.folder / UNTRACKED_FILE

    @property
    def empty(self) -> bool:
        return not self.path.exists()

    def waiting(self) -> int:
        """How many records wait."""
        return 0 if self.empty else self.path.read_bytes().count(b"\n")

    def add(self, record: Record) -> None:
        """Keep a record behind those that wait."""
        with self._locked():
            _append(self.path, record)

    def keys(self) -> dict[str, str | None]:
        """Keys of this folder's runs, oldest first, and the run ids that they became."""
        file = self.folder / KEYS_FILE
        return dict(read_json(file)) if file.is_file() else {}

    def own(self) -> tuple[str | None, str | None]:
        """Key and run id of the run that began here last."""
        return next(reversed(self.keys().items()), (None, None))

    def know(self, key: str, run_id: str | None) -> None:
        """Remember a key and its run's id, and write the id where the job had none to write."""
        write_json(self.folder / KEYS_FILE, self.keys() | {key: run_id})
        self.settle()

    def settle(self) -> None:
        """Fill the run's id in where the job, when it wrote its files, did not know it."""
        _, run_id = self.own()
        if run_id is None:
            return
        file, result = self.folder / RUN_FILE, self.folder / RESULT_FILE
        if file.is_file() and not file.read_text(encoding="utf-8"):
            write_text(file, run_id)
        if result.is_file():
            values = read_json(result)
            if "mlflow_run_id" in values and values["mlflow_run_id"] is None:
                write_json(result, values | {"mlflow_run_id": run_id})

    def send_first(self, client: Any) -> int:
        """Send the first record, or some that make one batch; how many (0: none wait).

        What the store refuses is put aside with its reason.
        """
        with self._locked():
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
        """Id or key of the run whose record is first."""
        record, _, _ = self._first()
        return str(record["run"]) if record else ""

    def refused(self) -> int:
        """How many records the store refused."""
        file = self.folder / REFUSED_FILE
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def reasons(self) -> list[str]:
        """Why each of the refused records was refused, oldest first."""
        file = self.folder / REFUSED_FILE
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [str((_read(line) or {}).get("refused", "")) for line in lines]

    def _send(self, client: Any, record: Record) -> None:
        if record["kind"] == "create":
            parent = self.run_id_of(client, record["parent"])
            if record["parent"] and parent is None:
                say(f"warning: no folder above {self.folder} knows its run's parent")
            self.know(record["run"], create_run(client, record, parent))
        else:
            run_id = self.run_id_of(client, record["run"])
            if run_id is None:
                raise RefusedError(f"its run {record['run']} is not known here")
            send(client, run_id, record, self.folder)

    def run_id_of(self, client: Any, run: str | None) -> str | None:
        """The run's id, or the id of a key's run, which is made if it has to be.

        A key is looked for here and in the folders above; None when none of them knows it.
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
        """Aside with it; of several params and tags with those alone that are at fault."""
        values = record.get("values", {})
        if len(values) < 2:
            _append(self.folder / REFUSED_FILE, {**record, "refused": why})
            return
        for key, value in values.items():
            alone = {**record, "values": {key: value}}
            try:
                self._send(client, alone)
            except RefusedError as error:
                self._refuse(client, alone, str(error))

    def _first(self) -> tuple[Record | None, int, int]:
        """The first record, metrics with those that follow; of how many lines, and bytes."""
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

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: one process has it to itself
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _append(path: Path, record: Record) -> None:
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a kill left a line half-written
                file.write(b"\n")
        file.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _read(line: bytes) -> Record | None:
    try:
        return dict(json.loads(line))
    except ValueError:  # half-written when its process was killed
        return None


def _one_batch(first: Record, record: Record) -> bool:
    return (
        first["kind"] == record["kind"] == "metrics"
        and first["run"] == record["run"]
        and len(first["rows"]) + len(record["rows"]) <= BATCH_METRICS
    )
