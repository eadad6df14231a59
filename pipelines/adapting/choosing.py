"""Choose the encoder that knows the documents best by the dev half of the held-out queries or of
labelled texts, and hand it back if the test half confirms that it is better than the untouched
encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.dev_scores import sort_key
from pipelines.evaluating.options import EvaluateOptions, Readout
from pipelines.evaluating.scoring import FOUND_FIRST, MRR10, SAME_LABEL, score_of
from pipelines.runtime.progress import say
from pipelines.training.baseline import Baseline
from pipelines.training.baseline_sentence import plain_pooling
from pipelines.training.dev_sets import DevSets, dev_metric, score_dev

UNTOUCHED, MERGED = "untouched", "merged"


@dataclass(frozen=True)
class Contender:
    """An encoder that may become the result.

    model: a MODEL that `cotbert evaluate` opens. readout: how it is read, None for its own way.
    score: its dev score.
    """

    name: str
    model: str
    score: float
    readout: str | None = None

    def options(self, common: EvaluateOptions) -> EvaluateOptions:
        """Return the options that score this encoder as `common` scores others."""
        return replace(common, model=self.model, readout=cast(Readout | None, self.readout))


def untouched(encoder: str, baseline: Baseline) -> Contender:
    """Return the encoder before training, in the way in which it scores best."""
    return Contender(UNTOUCHED, encoder, baseline.score, baseline.readout)


def scored(name: str, model: Path, dev: DevSets) -> Contender:
    """Return a model folder with its dev score."""
    encode = SentenceEncoder.from_pretrained(model).functions()
    score = score_dev(encode, dev)[dev_metric(dev).name]
    say(f"{name}: {dev_metric(dev).words} {score:.2f}")
    return Contender(name, str(model), score)


def choose(contenders: Sequence[Contender]) -> Contender:
    """Return the one with the best dev score; of equal ones the first, which changes less.

    contenders: the untouched encoder first.
    """
    return max(contenders, key=lambda one: sort_key(one.score))


def confirm(
    winner: Contender,
    first: Contender,
    scores: Mapping[str, Any],
    differences: Mapping[str, Any],
) -> Contender:
    """Return the winner of the dev queries if it is better by the test queries too, else `first`;
    with labelled texts, if it is better by their test half beyond chance.

    first: the untouched encoder. scores: an evaluation by the name of a contender. differences: to
    the untouched encoder. Among ten or twenty dev queries the best of many candidates is easily the
    luckiest. Of as many found first, MRR@10 decides. By 100 labels of TREC, PromptBERT was better
    by 2.9 points (-6.2 to +14.9) on the test half, and worse by 6.9 on 500 other questions.
    """
    if winner.name == first.name:
        return first
    by_labels = differences[winner.name].get(SAME_LABEL)
    if by_labels is not None:
        return winner if (by_labels["low"] or 0.0) > 0 else first

    def found(one: Contender) -> tuple[float, float]:
        own = scores[one.name]
        return score_of(own[FOUND_FIRST]), score_of(own[MRR10])

    return winner if found(winner) > found(first) else first


def plain_readout(baseline: Baseline) -> str:
    """Return mean or cls: how methods without a template read the encoder that they train."""
    return plain_pooling(baseline.reading)
