"""How many replicas run, and that a Ray that does not answer holds up neither this nor the end."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from pipelines.serving import replicas
from pipelines.serving.replicas import Replicas


def status(running):
    deployment = SimpleNamespace(replica_states={"RUNNING": running, "STARTING": 1})
    application = SimpleNamespace(deployments={"encoder": deployment})
    return SimpleNamespace(applications={"mine": application})


@pytest.fixture
def asked(monkeypatch):
    """The threads that have asked Ray, which answers when `answers` is set."""
    from ray import serve

    threads, answers = [], threading.Event()

    def ask():
        threads.append(threading.current_thread())
        answers.wait(20)
        return status(2)

    monkeypatch.setattr(serve, "status", ask)
    monkeypatch.setattr(replicas, "HEALTH_SECONDS", 0.05)
    yield SimpleNamespace(threads=threads, answers=answers)
    answers.set()


def test_a_ray_that_does_not_answer_is_asked_once_by_a_thread_that_no_end_waits_for(asked):
    service = Replicas(None, "mine", 2, 2)

    async def three_times():
        without = [await service.running() for _ in range(2)]
        asked.answers.set()
        asked.threads[0].join(20)
        return [*without, await service.running()]

    assert asyncio.run(three_times()) == [0, 0, 2]
    (thread,) = asked.threads
    assert thread.daemon


def test_a_ray_that_is_gone_runs_no_replica(monkeypatch):
    from ray import serve

    def gone():
        raise ConnectionError("no cluster")

    monkeypatch.setattr(serve, "status", gone)
    assert asyncio.run(Replicas(None, "mine", 2, 2).running()) == 0
    monkeypatch.setattr(serve, "status", lambda: status(1))
    assert asyncio.run(Replicas(None, "mine", 2, 2).running()) == 1
    assert asyncio.run(Replicas(None, "another", 2, 2).running()) == 0
