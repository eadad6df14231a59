"""SIGTERM and SIGHUP end a command as Ctrl-C does, in plain words and with their own status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from pipelines import cli
from pipelines.runtime import stop_signals as stop_signals_module
from pipelines.runtime.stop_signals import restored_signal_handlers, stop_signals

WAITING = """
import os, signal, threading
from pipelines.recording.store import connect

signal.signal(signal.SIGINT, signal.default_int_handler)
connect()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
threading.Event().wait()
"""
AFTER_RAY = """
import os, signal
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.stop_signals import stop_signals

with stop_signals():
    with ray_session():
        pass
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt:
        print("handled")
"""
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers():
    """Python's own, whatever the tests before have left, and restored after each."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in HANDLED[1:]:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def command(monkeypatch):
    """The exit status of a command that does this."""

    def run(work):
        monkeypatch.setattr(cli.COMMANDS["recipes"].options, "run", lambda _: work())
        return cli.main(["recipes"])

    return run


def send(number=signal.SIGTERM):
    """Send a signal to this process and wait for what it does."""
    os.kill(os.getpid(), number)
    time.sleep(5)


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
        (signal.SIGINT, 130, "interrupted"),
    ],
)
def test_a_signal_is_said_in_a_sentence(command, capsys, number, status, words):
    before = [signal.getsignal(n) for n in HANDLED]
    assert command(lambda: send(number)) == status
    stderr = capsys.readouterr().err
    assert stderr == f"cotbert: {words}; nothing half-written has its final name\n"
    assert [signal.getsignal(n) for n in HANDLED] == before


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyboardInterrupt("give the same command"), "give the same command"),
        # A scheduler stops all processes of a job: the driver sees its workers die.
        (RuntimeError("an actor died"), "nothing half-written has its final name"),
    ],
)
def test_advice_is_printed_and_a_failure_that_the_signal_caused_is_none(
    command, capsys, error, words
):
    def work():
        try:
            send()
        except KeyboardInterrupt:
            raise error from None

    assert command(work) == 143
    assert capsys.readouterr().err == f"cotbert: stopped by SIGTERM; {words}\n"


def test_a_closed_terminal_sends_it_twice(command):
    """The second one must not cut off what the first one's end still does."""
    ended = []

    def work():
        try:
            send(signal.SIGHUP)
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append(True)

    assert command(work) == 129
    assert ended


def test_a_later_signal_interrupts_an_end_that_hangs(command, monkeypatch):
    monkeypatch.setattr(stop_signals_module, "ENDING_SECONDS", 0.2)
    ended = []

    def work():
        try:
            send()
        finally:
            time.sleep(0.3)
            send()
            ended.append("without the later signal")

    assert command(work) == 143
    assert ended == []


def test_rays_handler_of_ctrl_c_is_not_asked(command):
    """It waits for the controller of a training, which may be busy for minutes."""
    asked = []

    def work():
        signal.signal(signal.SIGINT, lambda *_: asked.append("Ray"))
        send()

    assert command(work) == 143
    assert asked == []


def test_a_background_process_is_ended_and_nohup_is_respected(command):
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    assert command(send) == 143
    assert command(lambda: os.kill(os.getpid(), signal.SIGHUP)) == 0


def test_a_handler_that_ray_installs_does_not_stay():
    def ours(number, frame):
        raise KeyboardInterrupt

    for number in HANDLED:
        signal.signal(number, ours)
    with restored_signal_handlers():
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)
    assert [signal.getsignal(number) for number in HANDLED] == [ours] * 3


def test_an_exit_by_rays_handler_while_it_starts_is_the_signal():
    with stop_signals() as stop:
        with pytest.raises(KeyboardInterrupt), restored_signal_handlers():
            raise SystemExit(int(signal.SIGTERM))
        assert stop.signal is signal.SIGTERM
    with pytest.raises(SystemExit), restored_signal_handlers():
        raise SystemExit(2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_a_library_drops_interrupts_at_the_end_of_its_block(number):
    """Ray's start drops exceptions at some places; the command would run to its end."""

    def catch_all():
        with restored_signal_handlers(), suppress(BaseException):
            send(number)

    with stop_signals() as stop:
        with pytest.raises(KeyboardInterrupt):
            catch_all()
        assert stop.signal == number
    with stop_signals(), restored_signal_handlers():
        pass  # without a signal nothing is raised


def test_ctrl_c_ends_a_wait_for_a_lock(tmp_path):
    """Also after MLflow has imported polars, which replaces the handler of SIGINT."""
    pytest.importorskip("polars", reason="only polars replaces it")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    command = [sys.executable, "-c", WAITING]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
    assert ended.returncode == -signal.SIGINT, ended.stderr


@pytest.mark.ray_local
@pytest.mark.usefixtures("without_ray")
def test_a_signal_is_handled_after_ray_has_ended():
    """Ray's C++ code would restore the system's handler, which ends the process."""
    ended = subprocess.run([sys.executable, "-c", AFTER_RAY], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "handled\n"), ended.stderr
