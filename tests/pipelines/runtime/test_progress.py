"""Progress: redrawn in a terminal, few lines in a log, and the time that is left."""

from __future__ import annotations

import io
import json
import os
import termios
from types import SimpleNamespace

import pytest

from pipelines.runtime import progress
from pipelines.runtime.progress import (
    LOG_SECONDS,
    TERMINAL_SECONDS,
    Progress,
    clock,
    print_output,
    say,
    table,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def time(monkeypatch):
    """A clock under the test's control."""
    made = SimpleNamespace(now=100.0, monotonic=lambda: made.now)
    monkeypatch.setattr(progress, "time", made)
    return made


def test_a_log_gets_a_line_every_few_seconds(time):
    log = io.StringIO()
    stage = Progress("embed", 4000, "shard", log)
    for done in range(1, 26):
        time.now += LOG_SECONDS / 10
        stage.show(done)
    shown = [line.split()[2] for line in log.getvalue().splitlines()]
    assert shown == ["1/4,000", "11/4,000", "21/4,000"]
    assert "\r" not in log.getvalue()


def test_a_terminal_line_is_redrawn_and_covers_the_one_before(time):
    terminal = Terminal()
    stage = Progress("embed", 10, "shard", terminal)
    stage.show(1, "a long field")
    time.now += TERMINAL_SECONDS / 2
    stage.show(2, "too soon")
    time.now += TERMINAL_SECONDS
    stage.show(3)
    assert "\n" not in terminal.getvalue()
    first, second = terminal.getvalue().split("\r")[1:]
    assert len(second) >= len(first)
    assert second.rstrip().startswith("embed    shard 3/10")
    stage.show(4, "dev", always=True)
    assert terminal.getvalue().count("\n") == 1, "a line that stays ends the line"


def test_a_line_fits_the_terminal_and_can_be_redrawn(time):
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 30))
    with os.fdopen(terminal, "w") as stream, os.fdopen(screen, "rb") as read:
        stage = Progress("embed", 10, "shard", stream)
        stage.show(1, "a field of many letters")
        stage.show(2, "a field of many letters", always=True)
        shown = read.readline().decode()
    first, second = shown.split("\r", 2)[1:]
    assert first == "embed    shard 1/10  a field "
    assert second.startswith("embed    shard 2/10  a field of many letters")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_a_letter_that_the_terminal_lacks_is_shown_as_in_json(monkeypatch, encoding):
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stdout", out)
    texts = ["± 日本 \U0001f600"]
    print_output(json.dumps(texts, ensure_ascii=False))
    shown = out.buffer.getvalue().decode(encoding)
    assert json.loads(shown) == texts
    assert ("±" in shown, "日" in shown) == (encoding != "ascii", encoding == "utf-8")


def test_a_message_takes_the_place_of_a_progress_line(time, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    stage = Progress("train", None, "step", terminal)
    for show in (say, print_output):
        time.now += TERMINAL_SECONDS
        stage.show(1)
        show("a worker died")
        show("again")
    assert terminal.getvalue() == "\rtrain    step 1\r\x1b[Ka worker died\nagain\n" * 2


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_the_last_step_is_always_shown(time, stream):
    out = stream()
    stage = Progress("embed", 2, "shard", out)
    stage.show(1)
    stage.show(2, "all of it")
    assert out.getvalue().endswith("embed    shard 2/2  all of it\n")


def test_time_left_is_that_of_the_rate_of_this_run(time):
    log = io.StringIO()
    stage = Progress("train", 100, "step", log)
    time.now += 30
    stage.show(25)
    stage.start_at(60)  # a resumed stage counts only its own steps
    time.now += 20
    stage.show(60)
    time.now += 20
    stage.show(80)
    assert log.getvalue().splitlines() == [
        "train    step 25/100  1:30 left",
        "train    step 60/100",
        "train    step 80/100  0:40 left",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599, "59:59"), (90061, "25:01:01")],
)
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_a_table_aligns_columns_and_leaves_out_those_that_are_empty_in_all_rows():
    rows = [("STS12", "71.20", "", ""), ("a", "5", "", "x")]
    assert table(rows, ("task", "score", "test", "n")).splitlines() == [
        "task   score  n",
        "-----  -----  -",
        "STS12  71.20",
        "a          5  x",
    ]
    assert table([], ("name", "n")).splitlines()[0] == "name  n"
    assert table([("a", "1"), ("bb", "10")]) == "a    1\nbb  10"
