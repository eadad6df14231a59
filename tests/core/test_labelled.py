"""The score on labelled texts: blocks of cosines against a loop over all other texts."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.evaluation import labelled
from cotbert_core.evaluation.bootstrap import difference, resampled_mean, wider
from cotbert_core.evaluation.labelled import Labelled, nearest_labels, same_label, widening


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


def noisy(draw, base, labels):
    """The search of an encoder whose vectors are `base` (N, D) with noise of its own."""
    vectors = base + draw.normal(0, 0.6, base.shape)
    return nearest_labels(encode_of(vectors), Labelled([str(n) for n in range(len(base))], labels))


def test_answers_of_texts_that_are_nearest_to_each_other_are_counted_together():
    draw = np.random.default_rng(3)
    labels = np.append(draw.integers(0, 4, 38), [4, 5])  # two texts that are not asked
    base = draw.normal(0, 0.5, (6, 8))[labels] + draw.normal(0, 0.6, (40, 8))
    searches = [noisy(draw, base, labels) for _ in range(2)]
    gain = searches[1].found - searches[0].found
    left, asked = gain - gain.mean(), searches[0].asked.tolist()
    total = sum(left**2)
    for one in range(len(asked)):
        for other in range(one):
            pair = (asked[one], asked[other])
            near = [(s.nearest[one], s.nearest[other]) for s in searches]
            if any(a == pair[1] or b == pair[0] for a, b in near):
                total += 2 * left[one] * left[other]
    expected = np.sqrt(max(1, total / sum(left**2)))
    assert widening(gain, searches) == pytest.approx(expected)
    assert 1.0 < expected < 1.6
    assert widening(0 * gain, searches) == 1.0


def test_equal_encoders_are_seldom_told_apart():
    draw = np.random.default_rng(4)
    alone = together = 0
    for trial in range(150):
        labels = draw.integers(0, 4, 120)
        base = draw.normal(0, 0.45, (4, 16))[labels] + draw.normal(0, 0.6, (120, 16))
        first, second = noisy(draw, base, labels), noisy(draw, base, labels)
        a, b = (resampled_mean(one.found, 100, trial) for one in (first, second))
        factor = widening(second.found - first.found, [first, second])
        plain, spread = difference(0, a, b), difference(0, a, a + wider(b - a, factor))
        alone += not plain.low <= 0 <= plain.high
        together += not spread.low <= 0 <= spread.high
    assert together <= 0.08 * 150 < 0.1 * 150 <= alone
