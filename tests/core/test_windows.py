"""The order of a streamed corpus: every row once an epoch, and the same from any step on."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.errors import UserError
from cotbert_core.settings import override
from cotbert_core.training.sampling import steps_in_epoch
from cotbert_core.training.shuffle_windows import MEMORY_ROWS, WINDOW_ROWS, window_rows, windows

# 101 rows: of 4 a step, one row is left over each epoch.
PARTS = (7, 20, 1, 13, 0, 30, 9, 21)
PER_EPOCH = steps_in_epoch(sum(PARTS), 4)


@pytest.fixture
def settings(bert_folder, tiny_settings):
    return tiny_settings(bert_folder, {"batch_size": 4})


def stream(settings, done, total, together=25):
    """(part, row) after (part, row), as a worker would read them."""
    for window in windows(PARTS, settings, together, done, total):
        rows = [(part, row) for part in window.parts for row in range(PARTS[part])]
        yield from (rows[number] for number in window.order(len(rows)))


def steps(rows, size=4):
    rows = list(rows)
    assert len(rows) % size == 0
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def test_every_row_comes_once_an_epoch_but_the_ragged_end(settings):
    found = list(stream(settings, 0, 2 * PER_EPOCH))
    epochs = [found[:100], found[100:]]
    for rows in epochs:
        assert len(set(rows)) == len(rows) == 100
    assert epochs[0] != epochs[1]
    first = next(windows(PARTS, settings, 25, 0, PER_EPOCH))
    rows = first.order(sum(PARTS[part] for part in first.parts)).tolist()
    assert (list(first.parts) != sorted(first.parts), rows != sorted(rows)) == (True, True)
    other = settings.model_copy(update={"seed": 1})
    assert list(stream(other, 0, PER_EPOCH)) != epochs[0]


def test_a_resumed_run_sees_the_batches_of_the_whole_run(settings):
    total = 2 * PER_EPOCH + 3
    whole = steps(stream(settings, 0, total))
    assert len(whole) == total
    for done in range(total + 1):
        assert steps(stream(settings, done, total)) == whole[done:]
        assert steps(stream(settings, 0, done)) == whole[:done]


def test_it_reads_on_from_the_window_of_the_next_step(settings):
    whole = list(windows(PARTS, settings, 25, 0, PER_EPOCH))
    sizes = [window.stop - window.start for window in whole]
    assert len(whole) > 2, "premise"
    done = sizes[0] // 4 + 1
    rest = list(windows(PARTS, settings, 25, done, PER_EPOCH))
    assert [w.parts for w in rest] == [w.parts for w in whole[1:]]
    assert rest[0].start == done * 4 - sizes[0]


def test_windows_hold_about_as_many_rows_as_asked_for(bert_folder, tiny_settings):
    draw = np.random.default_rng(0)
    rows = draw.integers(80, 100, 500)
    settings = tiny_settings(bert_folder, {"batch_size": 2})
    whole = list(windows(rows, settings, 1000, 0, int(rows.sum()) // 2))
    sizes = np.array([rows[list(window.parts)].sum() for window in whole])
    assert sizes.min() > 1000 - 100
    assert sizes.max() < 1000 + 200
    assert sorted(part for window in whole for part in window.parts) == list(range(500))


@pytest.mark.parametrize("together", [101, 10**9])
def test_one_window_may_hold_the_whole_corpus(settings, together):
    (window,) = windows(PARTS, settings, together, 0, PER_EPOCH)
    assert sorted(window.parts) == list(range(len(PARTS)))
    assert (window.start, window.stop) == (0, 100)


def test_a_corpus_is_streamed_when_it_is_large_or_the_settings_say_so(settings):
    assert window_rows(settings, MEMORY_ROWS) is None
    assert window_rows(settings, MEMORY_ROWS + 1) == WINDOW_ROWS
    chosen = override(settings, {"shuffle_buffer_rows": 50})
    assert window_rows(chosen, 10) == window_rows(chosen, 10**9) == 50
    with pytest.raises(
        UserError, match=r"shuffle_buffer_rows is 3: give at least batch_size \(4\)"
    ):
        override(settings, {"shuffle_buffer_rows": 3})
