"""What a run does about lost workers: what counts as a loss, restarts, and fewer workers."""

from __future__ import annotations

import pytest
import torch
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
)

from cotbert_core.training.checkpoints import write_checkpoint
from pipelines.recipes import settings_for
from pipelines.storage.corpus import Corpus
from pipelines.training import fitting
from pipelines.training.failures import cause, is_loss
from pipelines.training.fitting import TrainingError, begun_process, fit
from pipelines.training.training_run import TrainingRun
from pipelines.training.worker_process import WorkerProcess

NAN = ValueError("the loss at step 2 is nan")


def test_a_worker_that_ran_out_of_memory_is_not_started_again():
    """It would run out of memory again; Ray's last line names environment variables."""
    low = "1 worker(s) were killed due to the node running low on memory. ...\nset `RAY_memory"
    failure = WorkerGroupError("a worker failed", {1: OutOfMemoryError(low)})
    assert not is_loss(failure)
    assert cause(failure).startswith("worker 1: Ray ended a process because the machine ran out")


def test_ray_datas_advice_is_not_the_cause():
    """An error of a task, to which Ray Data appends how to retry."""
    why = "UserError: gone\nFailed to apply UDF transform after 1/1 attempts (total backoff 0.0s)."
    failure = WorkerGroupError("a worker failed", {0: ValueError(f"{why}\nTo change retry ...")})
    assert cause(failure) == "worker 0: UserError: gone"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("cotbert_core.training.step.NonFiniteLossError: the loss is nan", "the loss is nan"),
        ("KeyError: 'text'", "KeyError: 'text'"),
    ],
)
def test_the_cause_has_no_class_of_cotberts_own(line, shown):
    failure = WorkerGroupError("a worker failed", {0: RuntimeError(f"Traceback\n  ...\n{line}")})
    assert cause(failure) == f"worker 0: {shown}"


# Before Ray knows of a node's death the others fail by it; and by one that failed itself.
GONE = RuntimeError("[/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:1")
NCCL = RuntimeError("torch.distributed.DistBackendError: NCCL error in")
UNHEALTHY = WorkerHealthCheckFailedError("no answer", RayActorError())


@pytest.mark.parametrize(
    ("failures", "lost"),
    [
        ((ValueError("connection closed by peer"), UNHEALTHY), True),
        ((RayActorError(), ValueError("peer is gone")), True),
        ((NAN,), False),
        ((GONE,), True),
        ((GONE, NCCL), True),
        ((GONE, ValueError("CUDA out of memory")), False),
        ((), False),
    ],
)
def test_a_death_is_a_loss_and_a_failure_is_none(failures, lost):
    assert is_loss(WorkerGroupError("a worker failed", dict(enumerate(failures)))) is lost


def test_the_cause_is_the_worker_that_failed_and_not_one_that_waited_for_it():
    low = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has"
    failure = WorkerGroupError("a worker failed", {0: NCCL, 1: RuntimeError(low)})
    assert cause(failure).startswith("worker 1: a GPU ran out of memory (it needed 2.00 GiB more)")


def test_several_workers_do_not_wait_for_what_an_earlier_runs_process_holds(monkeypatch):
    """A sweep may try one worker and then two."""
    kept, done = WorkerProcess(), []
    monkeypatch.setattr(kept, "start", lambda _: done.append("start"))
    monkeypatch.setattr(kept, "end", lambda: done.append("end"))
    for workers in (1, 2):
        with begun_process(settings_for("quickstart", None, [], {"workers": workers}), kept):
            pass
    assert done == ["start", "end"]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train with workers that fail as listed, each after the checkpoint of a step (0: of none);
    how often they were started."""
    settings = settings_for("quickstart", None, [], {})
    training = TrainingRun(settings, Corpus(tmp_path, {}), {}, tmp_path)

    def run(*ends):
        left = list(ends)

        def run_workers(*_):
            failure, step = left.pop(0)
            run.started = len(ends) - len(left)
            if step:
                write_checkpoint(training.checkpoints, step, 1.0, {})
            if isinstance(failure, ControllerError):
                raise failure
            if failure is not None:
                raise WorkerGroupError("lost", {0: failure})

        monkeypatch.setattr(fitting, "_run_workers", run_workers)
        fit(training, None, WorkerProcess())

    monkeypatch.setattr(fitting, "gpus_there", lambda: 0)
    monkeypatch.setattr("pipelines.runtime.ray_private.release_cores", lambda messages: None)
    return run


def test_a_run_continues_after_losses_in_attempts_of_their_own(
    trained, tmp_path, monkeypatch, capsys
):
    begun, begin = [], fitting.begin_attempt
    monkeypatch.setattr(fitting, "begin_attempt", lambda f: begun.append(begin(f)) or begun[-1])
    trained((RayActorError(), 0), (RayActorError(), 40), (None, 0))
    stderr = capsys.readouterr().err
    assert "continuing from the beginning" in stderr
    assert "continuing from the checkpoint of step 40" in stderr
    assert len(set(begun)) == 3
    assert (tmp_path / "checkpoints" / "attempt").read_text() == begun[-1]


def test_the_drivers_models_leave_no_memory_of_the_gpu(trained, monkeypatch):
    """Scoring the run before, or another entry of a comparison, may have taken some GB."""
    freed = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: freed.append(hasattr(trained, "started"))
    )
    trained((None, 0))
    assert freed == [False], "before the workers start"


def test_losses_without_progress_end_the_run(trained):
    with pytest.raises(TrainingError):
        trained(*[(RayActorError(), 0)] * 9)
    assert trained.started == 4
    trained(*[(RayActorError(), step) for step in range(1, 7)], (None, 0))
    assert trained.started == 7


def test_what_no_restart_can_mend_ends_the_run_at_once(trained):
    with pytest.raises(TrainingError, match="the loss at step 2 is nan"):
        trained((NAN, 4))


def test_a_start_without_resources_is_tried_again_and_is_no_loss(trained, capsys):
    late = ControllerError(WorkerGroupStartupTimeoutError(2))
    trained(*[(late, 0)] * 8, (None, 0))
    assert trained.started == 9
    assert "still waiting for resources for 2 workers" in capsys.readouterr().err


def caused_by(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("failure", "lost"),
    [
        (caused_by(WorkerGroupStartupFailedError("at least one"), RayActorError()), True),
        (RayActorError(), True),
        (NodeDiedError("gone"), True),
        (ValueError("a callback failed"), False),
    ],
)
def test_a_death_while_the_workers_begin_is_a_loss(trained, failure, lost):
    assert is_loss(ControllerError(failure)) is lost
    if lost:
        trained((ControllerError(failure), 0), (None, 0))
    else:
        with pytest.raises(TrainingError, match="a callback failed"):
            trained((ControllerError(failure), 0))
