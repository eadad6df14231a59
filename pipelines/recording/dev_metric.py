"""The dev metric, which chooses a run's best step and a sweep's best trial.

With graded pairs it is a Spearman correlation, with a corpus's held-out documents the share of
queries that rank their document first, with labelled texts the share that are nearest to one of
their label. Code that only compares dev scores works with each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.recording.metric_names import (
    DEV_FOUND_FIRST,
    DEV_MLM_ACCURACY,
    DEV_SAME_LABEL,
    DEV_SPEARMAN,
)


def with_suffix(name: str, suffix: str) -> str:
    """Return a score's name with a suffix before its dev set: dev_spearman_before.STS-B."""
    head, dot, dev = name.partition(".")
    return f"{head}{suffix}{dot}{dev}"


def before(name: str) -> str:
    """Return the name of a dev score before the first step."""
    return with_suffix(name, "_before")


@dataclass(frozen=True)
class DevMetric:
    """A dev metric.

    name: its name in metrics.jsonl, result.json and MLflow. words: the name in a sentence. unit:
    the text after a number.
    """

    name: str
    words: str
    unit: str

    @property
    def baseline(self) -> str:
        """The name of the untouched encoder's score."""
        return self.name.replace("dev_", "baseline_")

    @property
    def before(self) -> str:
        """The name of the score before the first step."""
        return before(self.name)

    @property
    def percent(self) -> str:
        """What follows the score in a sentence: a percent sign, or nothing."""
        return " %" if self.unit == "in %" else ""

    @property
    def label(self) -> str:
        """The label of an axis or a column."""
        return f"{self.words} {self.unit}"


SPEARMAN = DevMetric(DEV_SPEARMAN, "dev Spearman", "x 100")
FOUND_FIRST = DevMetric(DEV_FOUND_FIRST, "dev queries found first", "in %")
SAME_LABEL = DevMetric(DEV_SAME_LABEL, "dev texts by labels", "in %")
MLM_ACCURACY = DevMetric(DEV_MLM_ACCURACY, "dev masked tokens predicted", "in %")


def metric_in(names: Iterable[str]) -> DevMetric:
    """Return the dev metric of a metrics row, trial or result, given its keys; else SPEARMAN."""
    given = tuple(names)
    others = (FOUND_FIRST, SAME_LABEL, MLM_ACCURACY)
    return next((m for m in others if any(n.startswith(m.name) for n in given)), SPEARMAN)
