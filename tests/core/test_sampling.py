"""Batches of a run, resumed or not, and their rows dealt out to any number of workers."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.sampling import (
    batches,
    own_share,
    shard_by_length,
    steps_in_epoch,
    total_steps,
)


@pytest.fixture
def settings(bert_folder, tiny_settings):
    return tiny_settings(bert_folder, {})


def of_lengths(*lengths):
    """Lists of tokens that tell their row: row 3 of 2 tokens is [300, 301]."""
    return Ragged.from_lists([[100 * row + n for n in range(k)] for row, k in enumerate(lengths)])


def test_a_resumed_run_sees_the_batches_of_the_whole_run(settings):
    whole = [(s, r.tolist()) for s, r in batches(30, settings, 0, 20)]
    assert [s for s, _ in whole] == list(range(1, 21))
    for done in (0, 3, 7, 19):
        rest = [(s, r.tolist()) for s, r in batches(30, settings, done, 20)]
        assert rest == whole[done:]
    assert not list(batches(30, settings, 20, 20))


def test_epochs_are_reshuffled_and_drop_the_ragged_end(settings):
    seen = [r for _, r in batches(30, settings, 0, 14)]
    epochs = [np.concatenate(seen[:7]), np.concatenate(seen[7:])]
    for rows in epochs:
        assert len(set(rows.tolist())) == 28
        assert set(rows.tolist()) < set(range(30))
    assert epochs[0].tolist() != epochs[1].tolist()
    other = settings.model_copy(update={"seed": 1})
    assert next(batches(30, other, 0, 1))[1].tolist() != seen[0].tolist()


def test_total_steps_counts_whole_batches(settings):
    assert steps_in_epoch(30, 4) == 7
    assert total_steps(30, settings.model_copy(update={"epochs": 3})) == 21
    assert total_steps(30, settings.model_copy(update={"epochs": 3, "max_steps": 5})) == 5


def test_rows_are_dealt_out_there_and_back():
    work = np.array([10, 60, 20, 50, 30, 40])
    assert shard_by_length(work, 1).tolist() == [[0, 1, 2, 3, 4, 5]], "one worker keeps the order"
    assert shard_by_length(work, 2).tolist() == [[1, 2, 4], [0, 3, 5]]
    assert shard_by_length(work, 3).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert shard_by_length(np.full(6, 9), 2).tolist() == [[0, 3, 4], [1, 2, 5]], (
        "equal rows: by their number"
    )


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_row_is_dealt_once_and_shares_are_nearly_equal(workers):
    draw = np.random.default_rng(workers)
    for _ in range(50):
        work = draw.integers(1, 200, 24)
        shares = shard_by_length(work, workers)
        assert shares.shape == (workers, 24 // workers)
        assert sorted(shares.ravel().tolist()) == list(range(24))
        sums = work[shares].sum(axis=1)
        assert np.ptp(sums) <= np.ptp(work)


def test_companions_are_work_and_stay_with_their_sentence():
    texts = (of_lengths(5, 5, 5, 5), of_lengths(9, 1, 8, 2), of_lengths(1, 1, 1, 1))
    batch = Batch(*texts)
    assert batch.tokens.tolist() == [15, 7, 14, 8]
    shares = [own_share(batch, rank, 2) for rank in (0, 1)]
    assert [share.tokens.tolist() for share in shares] == [[15, 7], [14, 8]]
    for share in shares:
        rows = [{int(t) // 100 for t in row} for row in share.sentences]
        for texts in (share.augmented, share.negative):
            assert [{int(t) // 100 for t in row} for row in texts] == rows
