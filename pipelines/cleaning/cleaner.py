"""Apply the steps, the splitter and the filters of cleaning to texts, and count every change.

The steps are applied to the whole text, then it is split, if requested, and the filters are applied
to each sentence. The result for a row depends only on that row, however the input is batched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from operator import is_not

import numpy as np

from cotbert_core.errors import UserError
from pipelines.cleaning.filters import Rule, filters_of
from pipelines.cleaning.options import CleanOptions
from pipelines.cleaning.splitting import split
from pipelines.cleaning.steps import STEPS, STEPS_BEFORE_SPLIT
from pipelines.reading.bad_rows import PREFIXES


@dataclass(frozen=True)
class Cleaned:
    """The N remaining rows, and the counts of all changes.

    columns: a list of N strings for each text of a row. rows: (N,) int64, index of the input row of
    each row. changed: number of texts that each step changed, and of rows that `split` split.
    dropped: number of rows (after the split, sentences) by reason. Counts of paired texts have a
    prefix. added: number of sentences beyond one per row: input rows + added = N + dropped.
    sentences: (N,) int64, index of each row among all sentences before the filters. origin: index
    of the input row of each of those sentences; None without a split, when they are equal.
    """

    columns: list[list[str]]
    rows: np.ndarray
    changed: Counter[str]
    dropped: Counter[str]
    added: int
    sentences: np.ndarray
    origin: np.ndarray | None

    @property
    def texts(self) -> list[str]:
        """The N first texts."""
        return self.columns[0]


@dataclass(frozen=True)
class Cleaner:
    """Clean lists of texts; picklable. paired_texts: number of texts of a row after the first.

    Raises UserError if rows with paired texts are to be split, since their sentences cannot be
    matched.
    """

    options: CleanOptions
    paired_texts: int = 0

    def __post_init__(self) -> None:
        if self.options.split is not None and self.paired_texts:
            raise UserError(
                f"split is {self.options.split!r} and the rows have paired texts, whose sentences "
                "cannot be matched: split before the paired texts are made, or leave split out"
            )

    def __call__(self, columns: Sequence[Sequence[str]]) -> Cleaned:
        """Clean rows; one stays if all its texts do.

        columns: for each text of a row a list of texts, single lines with single blanks.
        """
        work = _PartlyCleaned([list(column) for column in columns])
        if not all(map(all, columns)):
            work.drop(_is_empty)
        steps = STEPS if self.options.split is None else STEPS_BEFORE_SPLIT
        for name in self.options.steps:
            work.change(name, steps[name])
        if self.options.split is not None:
            work.split(self.options.split)
        for rule in filters_of(self.options).values():
            work.drop(rule)
        sentences = np.asarray(work.sentences, np.int64)
        origin = None if work.origin is None else np.asarray(work.origin, np.int64)
        rows = sentences if origin is None else origin[sentences]
        changed = +work.changed
        return Cleaned(work.columns, rows, changed, work.dropped, work.added, sentences, origin)


def _is_empty(text: str, reason: str = "empty") -> str | None:
    return None if text else reason


@dataclass
class _PartlyCleaned:
    """Rows that are being cleaned, with the fields of Cleaned so far."""

    columns: list[list[str]]
    sentences: list[int] = field(init=False)
    origin: list[int] | None = None
    changed: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    added: int = 0

    def __post_init__(self) -> None:
        self.sentences = list(range(len(self.columns[0])))

    def change(self, name: str, step: Callable[[str], str]) -> None:
        """Apply a step to every text; drop rows with a text that becomes empty."""
        emptied = 0
        for number, (prefix, before) in enumerate(zip(PREFIXES, self.columns, strict=False)):
            after = list(map(step, before))
            # A step returns the same object if it changes nothing.
            different = sum(map(is_not, after, before))
            if different:
                empty = after.count("")
                self.changed[prefix + name] += different - empty
                self.columns[number] = after
                emptied += empty
        if emptied:
            self.drop(partial(_is_empty, reason=f"emptied_by_{name}"))

    def split(self, language: str) -> None:
        """Replace each row by a row for each sentence of its only text."""
        texts, origin = [], []
        for row, text in zip(self.sentences, self.columns[0], strict=True):
            sentences = split(text, language)
            self.changed["split"] += len(sentences) > 1
            texts += sentences
            origin += [row] * len(sentences)
        self.added += len(texts) - len(self.sentences)
        self.columns, self.origin, self.sentences = [texts], origin, list(range(len(texts)))

    def drop(self, rule: Rule) -> None:
        """Drop the rows with a text for which the rule returns a reason; count the first reason."""
        by_column = [list(map(rule, column)) for column in self.columns]
        reasons = by_column[0] if len(by_column) == 1 else list(map(_first_reason, *by_column))
        if any(reasons):
            self.dropped.update(filter(None, reasons))
            keep = [reason is None for reason in reasons]
            self.columns = [list(compress(column, keep)) for column in self.columns]
            self.sentences = list(compress(self.sentences, keep))


def _first_reason(*reasons: str | None) -> str | None:
    """Return the first reason among a row's texts, with the text's prefix."""
    return next((p + r for p, r in zip(PREFIXES, reasons, strict=False) if r is not None), None)
