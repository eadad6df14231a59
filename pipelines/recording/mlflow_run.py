"""An MLflow run whose records wait in the job's offline queue while the store does not answer."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotbert_core.errors import counted
from cotbert_core.files import write_json
from cotbert_core.messages.redaction import redact
from pipelines.reading.data_folder import REFUSED_FILE
from pipelines.recording.artifacts import RefusedError
from pipelines.recording.metric_names import accepted_name, model_name
from pipelines.recording.offline_queue import BATCH_METRICS, RUN_ID_KEYS, OfflineQueue, find_queues
from pipelines.recording.records import Record, is_key, now, send
from pipelines.recording.store import no_answer
from pipelines.recording.upload_worker import UploadWorker
from pipelines.runtime.ending import typed
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import RESULT_FILE

if TYPE_CHECKING:
    from pipelines.storage.corpus import Corpus

# Number of attempts of a call for a job without an offline queue. After a failed call the next
# ones are lost at once for a while: each would wait half a minute for a hanging server.
RETRIES = 3
RETRY_SECONDS = 2.0
PAUSE_SECONDS = 60.0


class Run:
    """An MLflow run. If its store did not answer and there is no queue, nothing is recorded.

    Names of params, metrics and tags may have any characters (`accepted_name`).
    """

    def __init__(self, client: Any, run: str | None, uploads: UploadWorker | None = None) -> None:
        self._client, self._uploads = client, uploads
        self.key = run
        """What child runs use as their parent: the run's id, or its key if it has no id."""
        self.lost = 0
        self._paused_until = float("-inf")

    @property
    def id(self) -> str | None:
        """The run's id; None until the run exists in the store."""
        if not is_key(self.key):
            return self.key
        assert self._uploads is not None
        run_id = self._uploads.queue.keys().get(str(self.key))
        self.key = run_id or self.key
        return run_id

    def params(self, values: Mapping[str, Any]) -> None:
        """Log settings as text, truncated to MLflow's limit of 6,000 characters."""
        pairs = [(accepted_name(key), redact(value)[:6000]) for key, value in values.items()]
        for start in range(0, len(pairs), 100):
            self._send("params", values=dict(pairs[start : start + 100]))

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log numbers at a step."""
        self.steps([(step, values)])

    def steps(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Log numbers at several steps, in batches of at most 1,000, MLflow's limit."""
        at = now()
        metrics = [
            (accepted_name(k), _number(v), at, step) for step, row in rows for k, v in row.items()
        ]
        for start in range(0, len(metrics), BATCH_METRICS):
            self._send("metrics", rows=metrics[start : start + BATCH_METRICS])

    def result(self, result: Mapping[str, Any]) -> None:
        """Log the numbers of a job's result."""
        self.metrics({k: v for k, v in result.items() if isinstance(v, (int, float))})

    def tags(self, values: Mapping[str, str]) -> None:
        if values:
            held = {accepted_name(key): redact(value) for key, value in values.items()}
            self._send("tags", values=held)

    def dataset(self, corpus: Corpus) -> None:
        """Log the corpus that the run trains on, by its digest."""
        held = {"name": corpus.path.name, "digest": corpus.digest, "path": str(corpus.path)}
        self._send("dataset", **held, rows=len(corpus))

    def model(
        self, folder: Path, params: Mapping[str, Any], metrics: Mapping[str, float], step: int
    ) -> None:
        """Log the run's trained encoder without its files. step: the step of its weights."""
        held = {key: redact(value)[:250] for key, value in params.items()}  # MLflow's limit
        name = model_name(folder.parent.name)
        # An undefined score would be shown as 0.
        scores = {accepted_name(key): v for key, v in metrics.items() if math.isfinite(v)}
        self._send("model", name=name, folder=str(folder), params=held, metrics=scores, step=step)

    def artifact(self, path: Path) -> None:
        """Log a file, or a whole folder under its own name."""
        location = path.absolute()
        if self._uploads is not None:  # a relative path, since the queue's folder may be moved
            location = Path(os.path.relpath(location, self._uploads.queue.folder))
        self._send("artifact", path=str(location))

    def write_result(
        self, output: Path, result: dict[str, Any], id_key: str = RUN_ID_KEYS[0]
    ) -> None:
        """Write the file that says that the job is finished, after the run has ended, and log it.

        Killed before it is written, the job continues, and ends its run. The run's id is known by
        now if the store has answered since; id_key: its key in the result.
        """
        result[id_key] = self.id
        write_json(output / RESULT_FILE, result)
        all_sent = self._uploads is None or self._uploads.queue.empty
        self.artifact(output / RESULT_FILE)
        # A store that does not answer is not asked again.
        if self._uploads is not None and all_sent and self._uploads.answers:
            self._uploads.flush()

    def end(self, status: str, final_folder: Path | None = None) -> None:
        """End the run. final_folder: the path of the queue's folder after the job's end."""
        self._send("end", status=status)
        if self._uploads is not None:
            self._uploads.flush()
            self._report_waiting(self._uploads.queue, final_folder)
        if self.lost:
            are = "is" if self.lost == 1 else "are"
            say(f"warning: {counted(self.lost, 'record')} for MLflow {are} lost")

    def _send(self, kind: str, **held: Any) -> None:
        if self.key is None:
            return
        record: Record = {"kind": kind, "run": self.key, "time": now(), **held}
        if self._uploads is None:
            self.lost += not self._sent(record)
            return
        try:
            self._uploads.send(record)
        except (OSError, ValueError) as error:  # not writable either, or a name that is not UTF-8
            say(f"warning: {self._uploads.queue.path} cannot be written ({error})")
            self.lost += 1

    def _sent(self, record: Record) -> bool:
        """Send a record of a job without a queue; return False if it is lost."""

        def call() -> bool:
            try:
                send(self._client, str(self.key), record)
            except RefusedError as error:  # the next record may be accepted
                say(f"warning: MLflow refused a record ({error})")
                return False
            return True

        if record["kind"] != "end" and time.monotonic() < self._paused_until:
            return False
        accepted = retried(call)
        if accepted is None:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
        return bool(accepted)

    def _report_waiting(self, queue: OfflineQueue, final_folder: Path | None) -> None:
        if self.id is not None:
            queue.write_run_id()
        folder = final_folder or queue.folder
        # Those of child runs too, whose own warnings are in the logs of workers.
        # Not how many: that of result.json is added after the end of the run.
        if any(one.waiting() for one in find_queues(queue.folder)):
            say(
                "warning: records wait for MLflow: "
                f"`{typed(('track-sync', str(folder)))}` sends them"
            )
        if refused := queue.refused():
            records = counted(len(refused), "record")
            say(f"warning: MLflow refused {records}: {folder / REFUSED_FILE}")


def _number(value: float) -> float | str:
    """Return a number in a form that JSON can hold."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def retried(call: Callable[[], Any]) -> Any:
    """Return the call's result (True instead of None), or None if it keeps failing."""
    for attempt in range(RETRIES):
        try:
            result = call()
            return True if result is None else result
        except Exception as error:  # a failure of the store must not end the job
            why = no_answer(error)
            if attempt + 1 < RETRIES:
                time.sleep(RETRY_SECONDS)
    say(f"warning: {why}")
    return None
