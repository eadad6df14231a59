"""The metrics file as rank 0 writes it: whole lines, cut to a checkpoint when a run continues."""

from __future__ import annotations

import io

import pytest

from pipelines.training.metrics_log import read_rows
from pipelines.training.metrics_writer import MetricsWriter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def written(path, steps, *, start=0):
    """A writer that has appended a row for each of the steps."""
    writer = MetricsWriter(path)
    writer.start(start)
    for step in steps:
        writer.append({"step": step, "loss": step / 3})
    return writer


def test_each_row_is_a_whole_line_at_once(path):
    writer = written(path, [1])
    assert path.read_text() == '{"step": 1, "loss": 0.3333333333333333}\n'
    writer.append({"step": 2, "loss": 0.2})
    assert path.read_text().count("\n") == 2


@pytest.mark.parametrize(("step", "kept"), [(4, [0, 1, 2, 3, 4]), (9, range(7)), (0, [])])
def test_a_run_that_continues_drops_the_rows_after_its_checkpoint(path, step, kept):
    written(path, range(7)).close()
    before = path.read_text().splitlines()
    written(path, [step + 1], start=step).close()
    assert list(read_rows(path)) == [*kept, step + 1]
    assert path.read_text().splitlines()[:-1] == before[: len(kept)], "byte for byte"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("end", ['{"step": 3, "lo', '{"step": 3}', "\0\0\0\n"])
def test_a_last_line_that_a_kill_damaged_is_dropped(path, end):
    written(path, [1, 2]).close()
    with path.open("a") as file:
        file.write(end)
    written(path, [5], start=4).close()
    assert list(read_rows(path)) == [1, 2, 5]


def test_a_worker_of_an_earlier_attempt_writes_nothing_more(path):
    earlier = written(path, [1, 2, 3])
    written(path, [3], start=2).close()
    after = path.read_bytes()
    earlier.append({"step": 4, "loss": 9.0})
    earlier.sync()
    assert path.read_bytes() == after


def test_rows_that_a_full_disk_refuses_come_with_the_next(path, monkeypatch):
    """A full disk may take the beginning of a line."""
    writer, taken = written(path, [1]), [5, 0]

    class Filling(io.FileIO):
        def write(self, data):
            room = taken.pop(0) if taken else len(data)
            if not room:
                raise OSError(28, "No space left on device")
            return super().write(data[:room])

    monkeypatch.setattr(writer, "_file", Filling(path, "a"))
    for step, there in ((2, [1]), (3, [1, 2, 3])):
        writer.append({"step": step, "loss": 0.5})
        assert list(read_rows(path)) == there
    taken += [0, 0]
    writer.append({"step": 4, "loss": 0.5})
    message = r"metrics\.jsonl' cannot be written .*No space left"
    with pytest.raises(OSError, match=message) as error:
        writer.sync()
    assert error.value.errno == 28
    writer.sync()
    assert list(read_rows(path)) == [1, 2, 3, 4]
    assert path.read_text().count("\n") == 4, "each of them once"
