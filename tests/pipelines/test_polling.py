"""A function that is called beside a job, and once when the job has ended."""

from __future__ import annotations

import threading

import pytest

from pipelines.runtime import polling
from pipelines.runtime.polling import polled


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.001)


def test_it_is_called_during_the_block_and_at_its_end():
    calls, called = [], threading.Event()

    def poll():
        calls.append(threading.current_thread() is threading.main_thread())
        called.set()

    with polled(poll):
        assert called.wait(20)
    assert calls[0] is False
    assert calls[-1] is True
    assert calls.count(True) == 1


def test_an_error_is_raised_at_the_end_and_ends_the_calls():
    calls, called = [], threading.Event()

    def poll():
        calls.append(1)
        called.set()
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"), polled(poll):
        assert called.wait(20)
    assert len(calls) == 1


def test_an_error_of_the_job_comes_first_and_the_last_call_is_made():
    calls = []

    def poll():
        calls.append(1)
        raise OSError("no more")

    with pytest.raises(ValueError, match="the job"), polled(poll):
        raise ValueError("the job")
    assert calls
