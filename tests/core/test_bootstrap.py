"""The bootstrap of Spearman correlations against scipy, resample by resample."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm, rankdata, spearmanr, t

from cotbert_core.evaluation import bootstrap
from cotbert_core.evaluation.bootstrap import difference, interval, resampled_spearman, seed_of
from cotbert_core.evaluation.pairs import Pairs, sentence_groups, spearman


def graded(count, seed=0, noise=1.0):
    """Predictions and grades, many of both equal to others."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(0, 11, count) / 2.0
    return np.round(gold + draw.normal(0, noise, count), 1), gold


def drawn(count, resamples, seed):
    """Places of the pairs in each resample, in one stream of draws as in the module."""
    return np.random.default_rng(seed).integers(0, count, (resamples, count))


def slow(predicted, gold, places, groups=None):
    found = [100 * spearmanr(predicted[i], gold[i]).statistic for i in places]
    return spread(found, groups or len(gold))


def spread(found, groups):
    """Resampled scores of this many groups, as far from their mean as those of a t interval."""
    found = np.array(found)
    wider = t.ppf(0.975, groups - 1) / norm.ppf(0.975) / np.sqrt(1 - 1 / groups)
    return found.mean() + wider * (found - found.mean())


def test_every_resample_is_ranked_again_as_scipy_ranks_it():
    predicted, gold = graded(60)
    places = drawn(60, 40, 3)
    expected = slow(predicted, gold, places)
    found = resampled_spearman(predicted, gold, 40, seed=3)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    # With the ranks of the whole sample, resampled, the numbers are others.
    ranks, grades = rankdata(predicted), rankdata(gold)
    once = spread([100 * np.corrcoef(ranks[i], grades[i])[0, 1] for i in places], 60)
    assert np.abs(once - expected).max() > 0.1


def test_intervals_hold_the_true_correlation_as_often_as_they_say():
    draw = np.random.default_rng(2)
    truth = 100 * 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman of normal pairs with Pearson 0.6
    held = 0
    for trial in range(80):
        x = draw.normal(size=200)
        y = 0.6 * x + 0.8 * draw.normal(size=200)
        ends = interval(resampled_spearman(x, y, 100, seed=trial))
        held += ends.low <= truth <= ends.high
    assert 0.89 <= held / 80 <= 0.99


def test_the_resamples_of_two_models_are_the_same_pairs():
    (first, gold), (second, _) = graded(80, noise=1.0), graded(80, noise=0.9)
    places = drawn(80, 300, 7)
    moved = slow(second, gold, places) - slow(first, gold, places)
    a, b = (resampled_spearman(p, gold, 300, seed=7) for p in (first, second))
    found = difference(1.5, a, b)
    low, high = np.percentile(moved, [2.5, 97.5])
    assert (found.difference, found.low, found.high) == pytest.approx((1.5, low, high))
    share = min((1 + (moved <= 0).sum()), (1 + (moved >= 0).sum())) / 301
    assert found.p == pytest.approx(min(1, 2 * share))
    unpaired = difference(1.5, a, resampled_spearman(second, gold, 300, seed=8))
    assert unpaired.high - unpaired.low > 1.2 * (found.high - found.low)


def test_the_interval_of_a_clear_difference_leaves_out_0():
    noise = np.random.default_rng(0).normal(size=999)
    up, down, same = (difference(0.0, 0 * noise, noise + shift) for shift in (9, -9, 0))
    assert up.low > 0 > down.high
    assert same.low < 0 < same.high
    assert up.p == down.p == pytest.approx(2 / 1000)
    assert same.p > 0.5
    equal = difference(0.0, noise, noise)
    assert (equal.low, equal.high, equal.p) == (0.0, 0.0, 1.0)


def test_a_resample_of_one_value_has_no_correlation():
    predicted, gold = np.arange(6.0), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    found = resampled_spearman(predicted, gold, 500)
    assert 0 < np.isnan(found).mean() < 1
    assert np.isfinite([interval(found).low, difference(0.0, found, found).p]).all()
    flat = interval(resampled_spearman(np.ones(5), np.arange(5.0), 20))
    assert np.isnan([flat.low, flat.high]).all()
    assert len(resampled_spearman(predicted, gold, 0)) == 0


def test_tasks_have_seeds_of_their_own():
    predicted, gold = graded(40)
    runs = [
        resampled_spearman(predicted, gold, 20, seed_of(t)) for t in ("STS12", "STS12", "STS13")
    ]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()


def test_equal_pairs_are_resampled_together():
    predicted, gold = graded(40, seed=6)
    pairs = Pairs([str(n % 25) for n in range(40)], [f"with {n % 25}" for n in range(40)], gold)
    (numbers,) = sentence_groups([pairs])
    assert numbers.tolist() == [n % 25 for n in range(40)]
    members = [np.flatnonzero(numbers == number) for number in range(25)]
    places = [np.concatenate([members[n] for n in row]) for row in drawn(25, 50, 4)]
    found = resampled_spearman(predicted, gold, 50, 4, numbers)
    np.testing.assert_allclose(found, slow(predicted, gold, places, groups=25), atol=1e-9)
    alone = resampled_spearman(predicted, gold, 50, 4)
    assert not np.allclose(found, alone)
    assert (resampled_spearman(predicted, gold, 50, 4, np.arange(40)) == alone).all()
    turned = [Pairs(["a", "b"], ["b", "a"], gold[:2]), Pairs(["d", "e"], ["b", "f"], gold[:2])]
    assert [part.tolist() for part in sentence_groups(turned)] == [[0, 0], [0, 1]]


def test_intervals_count_that_pairs_share_a_sentence():
    """Each of 60 sentences is in a pair with four others, as in STS12's SMTeuroparl."""
    draw, gold = np.random.default_rng(3), np.random.default_rng(0).normal(size=240)
    shared = np.repeat(np.arange(60), 4)
    pairs = Pairs([f"shared {n}" for n in shared], [f"own {n}" for n in range(240)], gold)
    (groups,) = sentence_groups([pairs])

    def models():
        noise = draw.normal(0, 0.5, (2, 60))[:, shared] + draw.normal(0, 0.3, (2, 240))
        return gold + noise

    truth = np.std([np.subtract(*(spearman(one, gold) for one in models())) for _ in range(400)])
    widths: dict[str, list[float]] = {"alone": [], "together": []}
    for trial in range(20):
        both = models()
        for name, kept in (("alone", None), ("together", groups)):
            a, b = (resampled_spearman(one, gold, 100, trial, kept) for one in both)
            widths[name].append(np.std(b - a) / truth)
    assert np.mean(widths["alone"]) < 0.85
    assert 0.9 < np.mean(widths["together"]) < 1.15


def test_values_of_a_group_are_resampled_together():
    draw = np.random.default_rng(2)
    values, groups = draw.integers(0, 2, 40).astype(float), draw.integers(0, 9, 40)
    members = [np.flatnonzero(groups == group) for group in range(9)]
    expected = []
    for places in drawn(9, 50, 4):
        rows = np.concatenate([members[group] for group in places])
        expected.append(100 * values[rows].mean())
    found = bootstrap.resampled_mean(values, 50, seed=4, groups=groups)
    np.testing.assert_allclose(found, spread(expected, 9))
    alone = bootstrap.resampled_mean(values, 50, seed=4)
    assert not np.allclose(found, alone)
    singles = bootstrap.resampled_mean(values, 50, seed=4, groups=np.arange(40) + 7)
    assert (singles == alone).all()


def test_accuracies_are_resampled_with_the_same_draws():
    right = np.random.default_rng(1).random(40) < 0.7
    expected = [100 * right[i].mean() for i in drawn(40, 50, 4)]
    found = bootstrap.resampled_mean(right, 50, seed=4)
    np.testing.assert_allclose(found, spread(expected, 40))
    assert len(bootstrap.resampled_mean(right, 0)) == 0


@pytest.mark.parametrize(("documents", "least", "most"), [(6, 0.01, 0.09), (30, 0.01, 0.09)])
def test_equal_models_differ_by_few_documents_as_rarely_as_by_many(documents, least, most):
    draw = np.random.default_rng(1)
    groups, excluded = np.repeat(np.arange(documents), 4), 0
    for trial in range(200):
        ease, lean = draw.random(documents)[groups], draw.normal(0, 0.25, documents)[groups]
        found = [draw.random(len(groups)) < ease + sign * lean for sign in (1, -1)]
        a, b = (bootstrap.resampled_mean(one.astype(float), 200, trial, groups) for one in found)
        gap = difference(0.0, a, b)
        excluded += not gap.low <= 0 <= gap.high
    assert least <= excluded / 200 <= most


def test_a_gain_in_each_of_a_few_documents_may_be_chance():
    gained, groups = np.tile([1.0, 0.0, 0.0, 0.0], 5), np.repeat(np.arange(5), 4)
    before, after = (bootstrap.resampled_mean(one, 99, 0, groups) for one in (0 * gained, gained))
    found = difference(25.0, before, after)
    assert found.difference == 25.0
    assert np.isnan([found.low, found.high, found.p]).all()


@pytest.mark.parametrize(("documents", "gain"), [(6, 1.0), (6, -0.5), (40, 1.0), (50, 0.0)])
def test_a_few_equal_differences_are_uncertain(documents, gain):
    """The interval and p are those of scipy's exact test of signs; each document counts once."""
    values, groups = np.full(2 * documents, gain), np.repeat(np.arange(documents), 2)
    before, after = (bootstrap.resampled_mean(one, 999, 0, groups) for one in (0 * values, values))
    found = difference(100 * gain, before, after, documents)
    exact = binomtest(documents, documents)
    unseen = 1 - exact.proportion_ci().low
    reach = unseen * (100 + 100 * abs(gain))
    assert [found.low, found.high] == pytest.approx([100 * gain - reach, 100 * gain + reach])
    assert found.p == pytest.approx(max(exact.pvalue, 2 / 1000) if gain else 1.0)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_few_equal_answers_do_not_make_a_share_certain(score):
    """The interval is that of scipy's exact test; each group counts once."""
    values, groups = np.full(40, score), np.repeat(np.arange(20), 2)
    found = bootstrap.share_interval(bootstrap.resampled_mean(values, 200, groups=groups), 20)
    exact = binomtest(int(20 * score), 20).proportion_ci()
    assert (found.low, found.high) == pytest.approx((100 * exact.low, 100 * exact.high))
    few = bootstrap.share_interval(bootstrap.resampled_mean(values[:5], 200), 5)
    assert np.isnan([few.low, few.high]).all()


@pytest.mark.parametrize(("count", "share"), [(6, 0.8), (10, 0.9), (20, 0.95), (50, 0.98)])
def test_intervals_hold_a_high_share_too(count, share):
    held = 0.0
    for right in range(count + 1):
        values = (np.arange(count) < right).astype(float)
        ends = bootstrap.share_interval(bootstrap.resampled_mean(values, 300), count)
        held += binom.pmf(right, count, share) * (ends.low <= 100 * share <= ends.high)
    assert held >= 0.9
