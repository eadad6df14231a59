"""What a run does about lost workers: what counts as a loss, restarts, and fewer workers."""

from __future__ import annotations

import pytest
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
)

from cotbert_core.errors import UserError
from cotbert_core.training.checkpoints import write_checkpoint
from pipelines.recipes import settings_for
from pipelines.runtime.placement import Node
from pipelines.training import fitting, resources
from pipelines.training.failures import cause, is_loss
from pipelines.training.fitting import TrainingError, fit
from pipelines.training.resources import (
    check_capacity,
    fewer_workers,
    takes_gpus,
    worker_capacity,
    workers_now,
)
from pipelines.training.training_run import TrainingRun
from pipelines.training.worker_process import WorkerProcess

NAN = ValueError("the loss at step 2 is nan")


def test_a_worker_that_ran_out_of_memory_is_not_started_again():
    """It would run out of memory again; Ray's last line names environment variables."""
    low = "1 worker(s) were killed due to the node running low on memory. ...\nset `RAY_memory"
    failure = WorkerGroupError("a worker failed", {1: OutOfMemoryError(low)})
    assert not is_loss(failure)
    assert cause(failure).startswith("worker 1: Ray ended a process because the machine ran out")


def settings(**changes):
    return settings_for("quickstart", None, [], {"batch_size": 12, "workers": 4, **changes})


@pytest.mark.parametrize(
    ("batch_size", "capacity", "least", "expected"),
    [
        *[(12, 4, 1, 4), (12, 3, 1, 3), (12, 5, 1, 4), (12, 2, 2, 2), (12, 1, 2, None)],
        *[(12, 0, 1, None), (8, 3, 1, 2)],
    ],
)
def test_the_most_workers_that_share_the_batch_evenly(batch_size, capacity, least, expected):
    assert fewer_workers(settings(batch_size=batch_size, min_workers=least), capacity) == expected


def test_a_cluster_without_capacity_is_waited_for_and_then_fewer_workers_continue(
    monkeypatch, capsys
):
    capacities = iter([2, 2, 4, 2, 2, 0, 0, 3])
    monkeypatch.setattr(resources, "worker_capacity", lambda *_: next(capacities))
    monkeypatch.setattr(resources, "POLL_SECONDS", 0.0)
    assert workers_now(settings(min_workers=1, node_seconds=60)) == 4, "the node came back"
    stderr = capsys.readouterr().err
    assert stderr.count("waiting for resources for 4 workers: the cluster has enough for 2") == 1
    assert workers_now(settings(min_workers=1, node_seconds=0)) == 2
    assert "the cluster has room for 2 workers: continuing with 2" in capsys.readouterr().err
    assert workers_now(settings(node_seconds=0)) == 4, "without min_workers Ray waits"
    assert workers_now(settings(min_workers=3, node_seconds=0)) == 3, "not with fewer than that"


@pytest.mark.parametrize(
    ("asked", "there", "taken"), [(None, 3, False), (None, 4, True), (0, 8, False), (1, 0, True)]
)
def test_workers_train_on_gpus_when_they_shall_or_when_there_are_enough(asked, there, taken):
    assert takes_gpus(settings(gpus_per_worker=asked), there) is taken


@pytest.fixture
def nodes(monkeypatch):
    """Let the session's live nodes be these."""

    def live(*sizes):
        monkeypatch.setattr(resources, "ray_runs", lambda: True)
        monkeypatch.setattr(resources, "live_nodes", lambda: [Node(*size) for size in sizes])

    return live


def test_a_node_fits_a_worker_with_its_cores_and_its_gpu():
    there = [Node(8, 1), Node(3, 4), Node(2)]
    assert worker_capacity(there, cpus=2, gpus=0) == 4 + 1 + 1
    assert worker_capacity(there, cpus=1, gpus=1) == 1 + 3


@pytest.mark.parametrize(
    ("sizes", "changes", "message"),
    [
        ([(2,), (2,)], {"workers": 6}, r"is 6 with 1 core\(s\) each, and the nodes have 2, 2 core"),
        # Three nodes of two cores have six, and yet no room for two workers of three.
        ([(2,)] * 3, {"cpus_per_worker": 3, "workers": 2}, r"enough for 0: give fewer"),
        ([(1, 1)] * 3, {"gpus_per_worker": 1}, r"a GPU each, .* 3 GPU\(s\), enough for 3: give"),
        ([], {}, r"the nodes have 0 core\(s\)"),
        ([(2,), (2,)], {}, None),
        ([(2,)], {"min_workers": 2}, None),
    ],
)
def test_workers_that_would_never_start_are_refused(monkeypatch, nodes, sizes, changes, message):
    nodes(*sizes)
    if message is None:
        check_capacity(settings(**changes))
        return
    with pytest.raises(UserError, match=message):
        check_capacity(settings(**changes))
    monkeypatch.setenv(resources.MAY_GROW, "1")
    check_capacity(settings(**changes))


def test_a_cluster_is_checked_when_it_is_connected_and_this_machine_always(monkeypatch):
    many = settings(workers=6, cpus_per_worker=4096)
    monkeypatch.setenv("RAY_ADDRESS", "there:1")
    check_capacity(many)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match=r"this machine has .* enough for 0: .* by RAY_ADDRESS"):
        check_capacity(many)


def test_too_many_min_workers_are_refused():
    with pytest.raises(UserError, match="min_workers is 5: give at most workers"):
        settings(min_workers=5)


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


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Train with workers that fail as listed, each after the checkpoint of a step (0: of none);
    how often they were started."""
    training = TrainingRun(settings(), tmp_path, {}, tmp_path)

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


def test_losses_without_progress_end_the_run(trained):
    with pytest.raises(TrainingError):
        trained(*[(RayActorError(), 0)] * 9)
    assert trained.started == fitting.RESTARTS + 1
    trained(*[(RayActorError(), step) for step in range(1, 7)], (None, 0))
    assert trained.started == 7


def test_what_no_restart_can_mend_ends_the_run_at_once(trained):
    with pytest.raises(TrainingError, match="the loss at step 2 is nan"):
        trained((NAN, 4))


def test_a_start_without_resources_is_tried_again_and_is_no_loss(trained, capsys):
    late = ControllerError(WorkerGroupStartupTimeoutError(2))
    trained(*[(late, 0)] * 8, (None, 0))
    assert trained.started == 9
    assert "still waiting for resources for 4 workers" in capsys.readouterr().err


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
