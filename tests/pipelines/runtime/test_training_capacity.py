"""The number of training workers that fit on a cluster, and whether they train on GPUs."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from pipelines.recipes import settings_for
from pipelines.runtime import training_capacity
from pipelines.runtime.placement import Node
from pipelines.runtime.training_capacity import (
    check_capacity,
    check_concurrent,
    fewer_workers,
    takes_gpus,
    worker_capacity,
    workers_now,
)


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
    monkeypatch.setattr(training_capacity, "worker_capacity", lambda *_: next(capacities))
    monkeypatch.setattr(training_capacity, "POLL_SECONDS", 0.0)
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
        monkeypatch.setattr(training_capacity, "ray_runs", lambda: True)
        monkeypatch.setattr(
            training_capacity, "live_nodes", lambda: [Node(*size) for size in sizes]
        )

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
        # With as many GPUs as workers they train there, and the head's cores are of no use.
        ([(8,), (4, 4)], {"cpus_per_worker": 2}, r"a GPU each, .* 4 GPU\(s\), enough for 2: give"),
        ([(8,), (4, 4)], {"cpus_per_worker": 2, "gpus_per_worker": 0}, None),
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
    monkeypatch.setenv(training_capacity.MAY_GROW, "1")
    check_capacity(settings(**changes))


def test_a_cluster_is_checked_when_it_is_connected_and_this_machine_always(monkeypatch):
    many = settings(workers=6, cpus_per_worker=4096)
    monkeypatch.setenv("RAY_ADDRESS", "there:1")
    check_capacity(many)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(UserError, match=r"this machine has .* enough for 0: .* by RAY_ADDRESS"):
        check_capacity(many)


def test_more_trainings_at_a_time_than_fit_are_refused_before_a_session(monkeypatch):
    monkeypatch.setattr(training_capacity, "live_nodes", lambda: [Node(4)])
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    check_concurrent(settings(workers=2), 2)
    check_concurrent(settings(workers=2), None)
    with pytest.raises(UserError, match="max_concurrent is 3 and there is capacity for 2 training"):
        check_concurrent(settings(workers=2), 3)
    monkeypatch.setattr(training_capacity, "live_nodes", lambda: [Node(16, 2)])
    with pytest.raises(UserError, match=r"for 2 training\(s\) of 1 .* and a GPU: give 1 to 2"):
        check_concurrent(settings(workers=1), 3)
    monkeypatch.setenv("RAY_ADDRESS", "there:1")
    check_concurrent(settings(workers=2), 3)


def test_too_many_min_workers_are_refused():
    with pytest.raises(UserError, match="min_workers is 5: give at most workers"):
        settings(min_workers=5)
