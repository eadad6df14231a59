"""Scores with bootstrap intervals, as entries for JSON.

Shapes: R resamples, N pairs or examples, Q queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from cotbert_core.evaluation.bootstrap import (
    interval,
    resampled_mean,
    resampled_spearman,
    seed_of,
    share_interval,
    wider,
)
from cotbert_core.evaluation.held_out import HeldOut, HeldOutScores
from cotbert_core.evaluation.labelled import Labelled, NearestLabels, widening
from cotbert_core.evaluation.pairs import Pairs, PairScores, sentence_groups
from cotbert_core.evaluation.searches import EncoderScores
from cotbert_core.evaluation.sts import Predicted, Subsets, pooled, score_subsets
from cotbert_core.evaluation.transfer import Transferred

AVERAGE = "average"
TRANSFER_AVERAGE = "transfer_average"
# The names of the entries of scores without labels.
FOUND_FIRST, MRR10 = "held-out", "held-out-mrr10"
# The same for keyword search, equal for all models, and for both combined.
KEYWORDS, WITH_KEYWORDS = "held-out-keywords", "held-out-with-keywords"
# The same for passages of long documents, without and with keyword search.
PASSAGES, PASSAGES_WITH_KEYWORDS = "held-out-passages", "held-out-passages-with-keywords"
# The name of the entry of labelled texts.
SAME_LABEL = "same-label"
# The key of the weight with which BM25 was added to the cosines.
KEYWORD_WEIGHT_KEY = "keyword_weight"
# The key of the score that vectors without meaning would have.
BY_CHANCE = "by_chance"
# The possible keys of an entry's score, and their names in tables.
SCORES = {
    "spearman": "Spearman",
    "accuracy": "accuracy",
    "main_score": "main score",
    "found_first": "found first",
    "mrr10": "MRR@10",
}


@dataclass
class Scored:
    """The scores of a model.

    entries: as in the JSON file. resampled: (R,) scores x 100 by the same names, empty for R = 0.
    groups: number of resampled groups of the scores that are means, by the same names.
    predicted: similarities of the pairs, for plots. ranks: (Q,) rank of each held-out query's own
    document by cosine, empty if there are none. nearest: the search among labelled texts.
    """

    entries: dict[str, Any] = field(default_factory=dict)
    resampled: dict[str, np.ndarray] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    predicted: dict[str, Predicted] = field(default_factory=dict)
    ranks: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    nearest: NearestLabels | None = None

    def add(
        self, name: str, entry: dict[str, Any], resampled: np.ndarray, groups: int | None = None
    ) -> None:
        """Add an entry, with an interval if it was resampled. NaN becomes None, for JSON.

        groups: number of resampled groups if the score is a share, None for a correlation.
        """
        entry = without_nan(entry)
        score = next(key for key in entry if key in SCORES)
        ends = _ends(resampled, groups) if len(resampled) else {}
        rest = {key: value for key, value in entry.items() if key != score}
        self.entries[name] = {score: entry[score], **ends, **rest}
        if len(resampled):
            self.resampled[name] = resampled
        if groups is not None:
            self.groups[name] = groups

    def add_average(self, name: str, tasks: list[str]) -> None:
        """Add the mean of the tasks' entries. Its interval takes the tasks as independent."""
        mean = float(np.mean([score_of(self.entries[task]) for task in tasks]))
        self.entries[name] = without_nan(mean)
        if all(task in self.resampled for task in tasks):
            resampled = np.mean([self.resampled[task] for task in tasks], axis=0)
            self.resampled[name] = resampled
            if all(task in self.groups for task in tasks):
                # What the smallest task leaves open counts for its part of the average.
                self.groups[name] = len(tasks) * min(self.groups[task] for task in tasks)
            ends = _ends(resampled, self.groups.get(name))
            self.entries |= {f"{name}_{end}": value for end, value in ends.items()}


def without_nan(value: Any) -> Any:
    """Return a value for JSON, which has no NaN: an undefined number becomes None."""
    if isinstance(value, Mapping):
        return {key: without_nan(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def score_of(entry: Any) -> float:
    """Return the score x 100 of an entry, or an average, which is a number itself; NaN for None."""
    if isinstance(entry, Mapping):
        entry = next(entry[key] for key in SCORES if key in entry)
    return math.nan if entry is None else float(entry)


def measure_of(entry: Mapping[str, Any]) -> str:
    """Return the name of an entry's score, with the weight of the keyword search in it, or with the
    score by chance."""
    weight, chance = entry.get(KEYWORD_WEIGHT_KEY), entry.get(BY_CHANCE)
    more = "" if weight is None else f", keyword weight {weight:g}"
    more += "" if chance is None else f", by chance {chance:.1f}"
    return str(entry.get("metric") or next(SCORES[key] for key in SCORES if key in entry)) + more


def _ends(resampled: np.ndarray, groups: int | None) -> dict[str, float | None]:
    """Return low and high of a score's interval, both None if the resamples have no score.

    groups: number of resampled groups if the score is a share, None for a correlation. If all pairs
    are in perfect order, so are those of every resample, though a few pairs say little.
    """
    if groups is None and np.ptp(resampled) < 1e-9:
        return {"low": None, "high": None}
    if groups is None:
        ends = interval(resampled.clip(-100, 100))
    else:
        ends = share_interval(resampled, groups)
    return {end: without_nan(value) for end, value in asdict(ends).items()}


def add_sts(scored: Scored, predicted: dict[str, Subsets], resamples: int) -> None:
    """Add STS tasks and their average. A task's pairs are resampled from all of its subsets."""
    for task, subsets in predicted.items():
        together = pooled(subsets)
        scored.add(task, score_subsets(subsets), _resampled(task, together, resamples))
        scored.predicted[task] = together
    scored.add_average(AVERAGE, list(predicted))


def add_transfer(scored: Scored, done: dict[str, Transferred], resamples: int) -> None:
    """Add transfer tasks and their average. Test examples are resampled without retraining."""
    for task, transferred in done.items():
        resampled = resampled_mean(transferred.right, resamples, seed_of(task))
        scored.add(task, transferred.scores, resampled, len(transferred.right))
    scored.add_average(TRANSFER_AVERAGE, list(done))


def add_pairs(
    scored: Scored, splits: Mapping[str, tuple[PairScores, Pairs]], resamples: int
) -> None:
    """Add graded pairs. splits: scores and pairs of each split."""
    for split, (scores, pairs) in splits.items():
        name = f"pairs-{split}"
        predicted = Predicted(scores.cosine, pairs.gold, *sentence_groups([pairs]))
        entry = {
            "spearman": scores.spearman,
            "alignment": scores.alignment,  # NaN without a pair graded above 4
            "uniformity": scores.uniformity,
            "pairs": len(scores.cosine),
        }
        scored.add(name, entry, _resampled(name, predicted, resamples))
        scored.predicted[name] = predicted


def add_held_out(
    scored: Scored,
    held_out: HeldOut,
    keywords: HeldOutScores,
    found: EncoderScores,
    resamples: int,
) -> None:
    """Add the scores on held-out documents, with resampled documents of queries and fixed targets.

    keywords: scores of keyword search. found: scores of the encoder.
    """
    documents = held_out.query_documents
    groups = len(np.unique(documents))
    counts = {"queries": len(held_out), "documents": groups, "targets": held_out.searched}

    def add(name: str, score: str, values: np.ndarray, **more: float) -> None:
        entry = {score: 100 * float(values.mean()), **counts, **more}
        drawn = resampled_mean(values, resamples, seed_of(name), documents)
        scored.add(name, entry, drawn, groups)

    add(FOUND_FIRST, "found_first", found.alone.found)
    add(MRR10, "mrr10", found.alone.reciprocal)
    scored.ranks = found.alone.ranks
    for name, one in (
        (WITH_KEYWORDS, found.keywords),
        (PASSAGES, found.passages),
        (PASSAGES_WITH_KEYWORDS, found.both),
        (KEYWORDS, keywords),
    ):
        if one is not None:
            weight = {} if one.keyword_weight is None else {KEYWORD_WEIGHT_KEY: one.keyword_weight}
            add(name, "found_first", one.found, **weight)
    # Keyword search is equal for all models, so differences leave it out.
    scored.resampled.pop(KEYWORDS, None)


def add_labelled(
    scored: Scored, labelled: Labelled, nearest: NearestLabels, resamples: int
) -> None:
    """Add the score on labelled texts."""
    found = nearest.found
    entry = {
        "accuracy": 100 * float(found.mean()),
        "texts": len(found),
        "labels": labelled.label_count,
        BY_CHANCE: labelled.chance,
    }
    resampled = resampled_mean(found, resamples, seed_of(SAME_LABEL))
    spread = wider(resampled, widening(found, [nearest])) if resamples else resampled
    scored.add(SAME_LABEL, entry, spread, len(found))
    if resamples:
        # A difference is widened by how the answers of both encoders depend on each other.
        scored.resampled[SAME_LABEL] = resampled
    scored.nearest = nearest


def _resampled(name: str, predicted: Predicted, resamples: int) -> np.ndarray:
    cosine, gold, groups = predicted.cosine, predicted.gold, predicted.number
    return resampled_spearman(cosine, gold, resamples, seed_of(name), groups)
