"""A training on a cluster of this machine, as a user starts it, and what it must have left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from safetensors.numpy import load_file

from benchmarks.commands import kill_first, sets
from benchmarks.harness import DisagreementError
from cluster.nodes import LocalCluster
from pipelines.recording.metric_names import DEV_SPEARMAN, LOSS
from pipelines.runtime import processes
from pipelines.runtime.auth_token import MODE
from pipelines.runtime.ray_session import LOOPBACK
from pipelines.storage.output_folder import RESULT_FILE, RUN_FILE
from pipelines.training.metrics_log import METRICS_FILE, read_rows

WORKER = "ray::RayTrainWorker"
OTHERS = ("ray::TrainController", "ray::PlacementGroupCleaner", "ray::PreemptionWatcher")
# A disturbed run takes twice as long as another; one that takes longer than this hangs.
LONGEST_SECONDS = 400.0


class ClusterRun:
    """The command of a training, and its process while it runs."""

    def __init__(
        self,
        cluster: LocalCluster,
        output: Path,
        encoder: Path,
        corpus: Path,
        steps: int,
        every: int,
        batch: int,
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.output, self._cluster = output, cluster
        settings: dict[str, object] = {
            "max_steps": steps,
            "eval_every": every,
            "batch_size": batch,
            "workers": 2,
        }
        settings |= {"optimizer.learning_rate": 1e-4, "precision": "fp32", **more}
        self._words = ["train", "quickstart", "--encoder", str(encoder), "--corpus", str(corpus)]
        self._words += ["--output", str(output), *sets(settings)]
        self._log = output.with_suffix(".log")
        self._started: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it; the same command continues what has begun before."""
        variables = {MODE: "token", **LOOPBACK, "RAY_ADDRESS": self._cluster.ray_address}
        command = [sys.executable, "-m", "pipelines.cli", *self._words]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=log, stderr=log
            )
        self._started = self._started or time.monotonic()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def age(self) -> float:
        """Seconds since its first start."""
        return time.monotonic() - (self._started or time.monotonic())

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Raise DisagreementError unless it ends without an error, and in time."""
        assert self._process is not None
        try:
            status = self._process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DisagreementError(f"{self.output.name} hangs: {self._log.read_text()}") from None
        self.seconds = self.age
        if status:
            raise DisagreementError(
                f"{self.output.name} ended with status {status}: {self._log.read_text()}"
            )

    def last_step(self) -> int:
        """Return the last step in the metrics file."""
        path = self.output / METRICS_FILE
        return max(read_rows(path), default=0) if path.is_file() else 0

    def steps_done_again(self) -> int:
        """Return how many steps MLflow has twice; the metrics file has each step once."""
        from mlflow import MlflowClient

        run_id = (self.output / RUN_FILE).read_text(encoding="utf-8")
        logged = MlflowClient().get_metric_history(run_id, "step_seconds")
        return len(logged) - len({metric.step for metric in logged})


def train_processes(cluster: LocalCluster) -> set[int]:
    """Return the processes of Ray Train on the cluster: workers, controllers and helpers."""
    return processes.filter_by_title(processes.find_marked(cluster.mark), WORKER, *OTHERS)


def kill_one_worker(cluster: LocalCluster) -> bool:
    """Kill a worker; return whether there was one."""
    return kill_first(processes.filter_by_title(processes.find_marked(cluster.mark), WORKER))


def check_equal(output: Path, expected: Path) -> None:
    """Raise DisagreementError unless losses, dev scores and weights are equal bit for bit."""
    for key in (LOSS, DEV_SPEARMAN):
        own, right = _curve(output, key), _curve(expected, key)
        if own != right:
            differ = sorted(k for k in own.keys() | right.keys() if own.get(k) != right.get(k))
            raise DisagreementError(f"{output.name}: {key} differs, first at step {differ[0]}")
    files = sorted(p.relative_to(expected) for p in expected.glob("model/**/*.safetensors"))
    if not files:
        raise DisagreementError(f"{expected.name} has no weights")
    for file in files:
        own_weights, weights = load_file(output / file), load_file(expected / file)
        if own_weights.keys() != weights.keys() or any(
            own_weights[name].tobytes() != weights[name].tobytes() for name in weights
        ):
            raise DisagreementError(f"{output.name}: the weights of {file} differ")


def check_elastic(output: Path, expected: Path, steps: int) -> None:
    """Raise DisagreementError unless the run continued with one worker.

    Its losses must equal the undisturbed run's up to a checkpoint and differ after it, where
    dropout is seeded again.
    """
    own, right = _curve(output, LOSS), _curve(expected, LOSS)
    first = next((step for step in sorted(right) if own.get(step) != right[step]), steps + 1)
    if sorted(own) != sorted(right) or not 1 < first <= steps:
        raise DisagreementError(f"{output.name}: {len(own)} steps, other ones from step {first}")
    if json.loads((output / RESULT_FILE).read_text(encoding="utf-8"))["steps"] != steps:
        raise DisagreementError(f"{output.name} did not come to step {steps}")


def _curve(output: Path, key: str) -> dict[int, float]:
    rows = read_rows(output / METRICS_FILE)
    return {step: row[key] for step, row in rows.items() if key in row}
