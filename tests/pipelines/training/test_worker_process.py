"""Runs with one worker share a process, which a failure or other resources replace."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import ray

from pipelines.training import worker_process as module
from pipelines.training.failures import cause, is_loss
from pipelines.training.worker_process import WorkerError, WorkerProcess, worker_process

pytestmark = [pytest.mark.ray_local, pytest.mark.usefixtures("ray_here")]
ONE = {"num_cpus": 1, "num_gpus": 0}


def recorder():
    """An actor's class; made here, so that Ray sends it and does not import this file."""

    class Recorder:
        """Does what a job says in place of a training: writes its process's number, and ends."""

        def load(self):
            pass

        def train(self, job):
            Path(job["file"]).write_text(str(os.getpid()))
            if job["end"] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if job["end"] == "failed":
                raise FloatingPointError("the loss at step 2 is nan")

    return Recorder


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SingleWorker", recorder())

    def run_in(process, end="", resources=ONE):
        process.train({"file": str(tmp_path / "pid"), "end": end}, resources)
        return int((tmp_path / "pid").read_text())

    return run_in


def test_the_next_run_trains_in_the_same_process(run):
    with worker_process() as process:
        first, second = run(process), run(process)
        assert first == second != os.getpid()
        with worker_process(process) as kept:
            assert kept is process
        assert run(process) == first, "the block of its user does not end it"
    with worker_process() as process:
        assert run(process) != first, "the block that started it does"


def test_a_process_of_other_resources_replaces_it(run):
    with worker_process() as process:
        first = run(process)
        assert run(process, resources={"num_cpus": 2, "num_gpus": 0}) != first
        assert ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"] - 2


@pytest.mark.parametrize(
    ("end", "lost", "message"),
    [
        ("killed", True, "worker 0: its process died (killed, out of memory, or a lost node)"),
        ("failed", False, "worker 0: FloatingPointError: the loss at step 2 is nan"),
    ],
)
def test_a_failure_ends_the_process_and_the_next_run_has_a_new_one(run, end, lost, message):
    process = WorkerProcess()
    first = run(process)
    with pytest.raises(WorkerError) as failure:
        run(process, end)
    assert is_loss(failure.value) is lost
    assert cause(failure.value) == message
    assert run(process) != first
    process.end()
    process.end()
