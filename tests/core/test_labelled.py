"""The score on labelled texts: blocks of cosines against a loop over all other texts."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.evaluation import Labelled, labelled, same_label


def encode_of(vectors):
    return lambda texts: np.array([vectors[int(text)] for text in texts], np.float32)


def slow_same_label(vectors, labels):
    """Right if the nearest other text of its own label is nearer than any of another label."""
    unit = [vector / np.linalg.norm(vector) for vector in vectors.astype(np.float32).astype(float)]
    found = []
    for asked, label in enumerate(labels):
        others = [n for n in range(len(labels)) if n != asked]
        own = [unit[asked] @ unit[n] for n in others if labels[n] == label]
        rest = [unit[asked] @ unit[n] for n in others if labels[n] != label]
        if own:
            found.append(float(max(own) > max(rest) + 1e-6))
    return found


@pytest.mark.parametrize("cells", [1, 100, 2_000_000])
def test_blocks_give_what_a_loop_gives(monkeypatch, cells):
    """Also for labels of a single text, which are not asked but may be nearest."""
    monkeypatch.setattr(labelled, "BLOCK_CELLS", cells)
    draw = np.random.default_rng(0)
    labels = np.append(draw.integers(0, 6, 57), [6, 7, 8])
    vectors = draw.normal(size=(9, 5))[labels] + draw.normal(size=(60, 5))
    one = Labelled([str(n) for n in range(60)], labels)
    found = same_label(encode_of(vectors), one).tolist()
    assert found == slow_same_label(vectors, labels)
    assert len(found) == len(one.asked) < 60
    assert 0.2 < np.mean(found) < 0.9
    assert same_label(encode_of(draw.normal(size=(60, 5))), one).tolist() != found


def test_a_tie_with_another_label_counts_against():
    vectors = np.array([[1.0, 0], [1, 0], [1, 0], [0, 1], [0, 2]])
    one = Labelled(list("01234"), np.array([0, 0, 1, 1, 1]))
    assert same_label(encode_of(vectors), one).tolist() == [0, 0, 0, 1, 1]


def test_chance_is_the_share_of_other_texts_with_the_label():
    one = Labelled(list("01234"), np.array([0, 0, 1, 1, 2]))
    assert one.chance == pytest.approx(100 * 1 / 4)
    assert Labelled(list("0123"), np.array([0, 0, 0, 1])).chance == pytest.approx(100 * 2 / 3)
