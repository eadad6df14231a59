"""The driver follows the metrics file: each row is reported once, whatever happens to the file."""

from __future__ import annotations

import json

import pytest

from pipelines.training import metrics_follower as module
from pipelines.training.metrics_follower import REPORTED_FILE, AppendedRows, MetricsFollower
from pipelines.training.metrics_log import METRICS_FILE
from pipelines.training.metrics_writer import MetricsWriter


class Sent:
    """An MLflow run that remembers what it was sent."""

    def __init__(self):
        self.rows = []

    def steps(self, rows):
        self.rows += rows

    def losses(self):
        return [(step, row["loss"]) for step, row in self.rows if "loss" in row]


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def follow(tmp_path, sent):
    """A new follower of tmp_path, as each driver makes one."""

    def follower(**options):
        return MetricsFollower(sent, tmp_path, batch_size=8, total=100, **options)

    return follower


def line(step, loss=0.5, seconds=2.0):
    return json.dumps({"step": step, "loss": loss, "step_seconds": seconds}) + "\n"


@pytest.fixture
def add(tmp_path):
    """Append lines to the metrics file."""

    def append(*lines):
        with (tmp_path / METRICS_FILE).open("a") as file:
            file.writelines(lines)

    return append


def test_rows_are_sent_shown_and_passed_on_when_they_come(follow, sent, add, capsys):
    checks = []
    follower = follow(on_check=lambda *given: checks.append(given), unit="rows")
    follower.poll()
    assert sent.rows == []
    add('{"step": 0, "dev_spearman": 30.0, "check_seconds": 1.0}\n', line(1, 0.75))
    follower.poll()
    follower.poll()
    assert sent.rows == [
        (0, {"dev_spearman": 30.0, "check_seconds": 1.0}),
        (1, {"loss": 0.75, "step_seconds": 2.0}),
    ]
    add(line(100, 0.25), '{"step": 100, "dev_spearman": 31.5}\n')
    follower.poll()
    shown = capsys.readouterr().err
    assert "step 0/100  dev Spearman 30.00" in shown
    assert "step 100/100  loss 0.2500  4 rows/s" in shown
    assert checks == [(100, 31.5)], "not that of step 0"


@pytest.mark.parametrize("half", ['{"step": 2, "lo', '{"step": 2, "loss": 0.5}', "\0\0\0\0\n"])
def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path, follow, sent, add, half):
    follower = follow()
    add(line(1), half)
    follower.poll()
    assert sent.losses() == [(1, 0.5)]
    (tmp_path / METRICS_FILE).write_text(line(1) + line(2) + line(3))
    follower.poll()
    assert sent.losses() == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_steps_done_again_are_sent_where_they_differ(tmp_path, follow, sent):
    """A worker died at step 4 and the run continues from the checkpoint of step 2."""
    follower, writer = follow(), MetricsWriter(tmp_path / METRICS_FILE)

    def train_from(step, *rows):
        writer.start(step)
        follower.poll()
        sent.rows.clear()
        for step, loss, seconds in rows:
            writer.append({"step": step, "loss": loss, "step_seconds": seconds})
        follower.poll()
        return sent.rows

    train_from(0, *((step, 1.0, 2.0) for step in (1, 2, 3, 4)))
    again = train_from(2, (3, 1.0, 2.0), (4, 1.0, 5.0), (5, 1.0, 2.0))
    assert again == [(4, {"step_seconds": 5.0}), (5, {"loss": 1.0, "step_seconds": 2.0})]
    # With fewer workers: another dropout.
    assert train_from(4, (5, 0.5, 2.0)) == [(5, {"loss": 0.5})]


@pytest.mark.parametrize("again", [1, 5])
def test_a_file_that_was_replaced_between_two_looks_is_read_again(
    tmp_path, follow, sent, add, again
):
    """Also where it is longer than the old one by then."""
    follower = follow()
    add(line(1), line(2), line(3))
    follower.poll()
    (tmp_path / METRICS_FILE).unlink()
    follower.poll()
    add(line(1), *[line(2 + n, 0.5, 3.0 + n) for n in range(again)])
    follower.poll()
    assert sent.losses() == [(n, 0.5) for n in range(1, max(3, 1 + again) + 1)]
    assert [step for step, _ in sent.rows[3:]] == [2 + n for n in range(again)]


def test_a_resumed_run_reports_what_the_killed_driver_did_not(tmp_path, follow, sent, add):
    add(line(1), line(2))
    first = follow()
    assert sent.rows == [], "rows of an earlier version's driver, which had reported them"
    add(line(3))
    first.poll()
    add(line(4))  # and now the driver is killed
    second = follow()
    MetricsWriter(tmp_path / METRICS_FILE).start(4)
    second.poll()
    assert sent.losses() == [(3, 0.5), (4, 0.5)]
    second.close()
    assert not (tmp_path / REPORTED_FILE).exists()
    follow().poll()
    assert sent.losses() == [(3, 0.5), (4, 0.5)]


def test_steps_too_far_back_to_be_remembered_are_not_sent_again(
    tmp_path, follow, sent, add, monkeypatch
):
    monkeypatch.setattr(module, "REMEMBERED_STEPS", 3)
    follower = follow()
    add(*[line(step) for step in range(1, 10)])
    follower.poll()
    sent.rows.clear()
    (tmp_path / METRICS_FILE).write_text("".join(line(step, 0.5, 4.0) for step in range(1, 11)))
    follower.poll()
    assert [step for step, _ in sent.rows] == [7, 8, 9, 10]
    assert sent.losses() == [(10, 0.5)]


def test_a_full_disk_does_not_end_the_following(follow, sent, add, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_json", refuse)
    follower = follow()
    add(line(1))
    follower.poll()
    assert sent.losses() == [(1, 0.5)]


def test_the_offset_counts_whole_lines(tmp_path, add):
    rows = AppendedRows(tmp_path / METRICS_FILE)
    add(line(1), line(2))
    assert [row["step"] for row in rows.read(len(line(1)) + 3)] == [1]
    assert rows.offset == len(line(1))
    assert [row["step"] for row in rows.read()] == [2]
