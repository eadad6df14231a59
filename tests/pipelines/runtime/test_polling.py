"""A function that is called beside a job, and once when the job has ended."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import ray

from pipelines.runtime import polling
from pipelines.runtime.message_queue import MessageQueue, message_queue
from pipelines.runtime.polling import polled


@pytest.fixture
def poll(monkeypatch):
    """A function that notes whether each of its calls is by the main thread, and may fail."""
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.001)

    def call():
        call.by_main_thread.append(threading.current_thread() is threading.main_thread())
        call.called.set()
        if call.error is not None:
            raise call.error

    call.by_main_thread, call.called, call.error = [], threading.Event(), None
    return call


def test_it_is_called_during_the_block_and_at_its_end(poll):
    with polled(poll):
        assert poll.called.wait(20)
    *during, at_the_end = poll.by_main_thread
    assert during
    assert not any(during)
    assert at_the_end


def test_an_error_is_raised_at_the_end_and_ends_the_calls(poll):
    poll.error = OSError("no more")
    with pytest.raises(OSError, match="no more"), polled(poll):
        assert poll.called.wait(20)
    assert poll.by_main_thread == [False]


def test_an_error_of_the_job_comes_first_and_the_last_call_is_made(poll):
    poll.error = OSError("no more")
    with pytest.raises(ValueError, match="the job"), polled(poll):
        raise ValueError("the job")
    assert poll.by_main_thread


def test_a_late_answer_of_the_queue_fails_no_job_and_loses_no_message(monkeypatch):
    """The queue's process, which is still starting, answers when the job has ended."""
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.001)
    made, received, late = MessageQueue(), [], threading.Event()

    def get(answer, timeout):
        if threading.current_thread() is not threading.main_thread():
            late.set()
            raise ray.exceptions.GetTimeoutError
        return answer

    queue = SimpleNamespace(take=SimpleNamespace(remote=made.take))
    node = SimpleNamespace(get_node_id=lambda: "0" * 56)
    actor = SimpleNamespace(remote=lambda: queue)
    stubs = {"get": get, "kill": lambda _: None, "get_runtime_context": lambda: node}
    for name, stub in {**stubs, "remote": lambda **_: lambda _: actor}.items():
        monkeypatch.setattr(ray, name, stub)
    made.put([{"warning": "a worker died"}])
    with message_queue(received.extend):
        assert late.wait(20)
    assert received == [{"warning": "a worker died"}]
