"""SIGTERM and SIGHUP end a command as Ctrl-C does, in plain words and with their own status."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest

from pipelines import cli
from pipelines.runtime import stop_signals as stop_signals_module
from pipelines.runtime.stop_signals import restored_signal_handlers, stop_signals

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
        monkeypatch.setitem(cli.COMMANDS, "recipes", cli.COMMANDS["recipes"]._replace(run=work))
        return cli.main(["recipes"])

    return run


def send(*numbers):
    """Send signals to this process and wait for what they do."""
    for number in numbers:
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
    assert command(lambda _: send(number)) == status
    stderr = capsys.readouterr().err
    assert stderr == f"cotbert: {words}; nothing half-written has its final name\n"
    assert [signal.getsignal(n) for n in HANDLED] == before


def test_the_advice_of_a_job_on_how_to_continue_is_printed(command, capsys):
    def work(_):
        try:
            send(signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("give the same command with --resume to continue") from None

    assert command(work) == 143
    stderr = capsys.readouterr().err
    assert (
        stderr == "cotbert: stopped by SIGTERM; give the same command with --resume to continue\n"
    )


def test_a_closed_terminal_sends_it_twice(command):
    """The second one must not cut off what the first one's end still does."""
    ended = []

    def work(_):
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

    def work(_):
        try:
            send(signal.SIGTERM)
        finally:
            time.sleep(0.3)
            send(signal.SIGTERM)
            ended.append("without the later signal")

    assert command(work) == 143
    assert ended == []


def test_rays_handler_of_ctrl_c_is_not_asked(command):
    """It waits for the controller of a training, which may be busy for minutes."""

    asked = []

    def work(_):
        signal.signal(signal.SIGINT, lambda *_: asked.append("Ray"))
        send(signal.SIGTERM)

    assert command(work) == 143
    assert asked == []


def test_a_failure_that_the_signal_caused_is_no_failure(command, capsys):
    """A scheduler stops all processes of a job: the driver sees its workers die."""

    def work(_):
        try:
            send(signal.SIGTERM)
        except KeyboardInterrupt:
            raise RuntimeError("an actor died") from None

    assert command(work) == 143
    assert "stopped by SIGTERM" in capsys.readouterr().err


def test_a_background_process_that_ignores_ctrl_c_is_ended_all_the_same(command):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert command(lambda _: send(signal.SIGTERM)) == 143


def test_nohup_is_respected(command):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert command(lambda _: os.kill(os.getpid(), signal.SIGHUP)) == 0


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


def dropped(number):
    """What a library does that catches all exceptions."""
    with restored_signal_handlers(), suppress(BaseException):
        os.kill(os.getpid(), number)
        time.sleep(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_a_library_drops_interrupts_at_the_end_of_its_block(number):
    """Ray's start drops exceptions at some places; the command would run to its end."""
    with stop_signals() as stop:
        with pytest.raises(KeyboardInterrupt):
            dropped(number)
        assert stop.signal == number
    with stop_signals(), restored_signal_handlers():
        pass  # without a signal nothing is raised
