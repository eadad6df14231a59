"""Texts through the steps, the splitter and the filters of cleaning, with every change counted.

Steps come first, on the whole text; then the split, if any; then the filters, on each sentence.
What comes out depends on each row alone, so any cut of the input into batches gives the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from operator import is_not

import numpy as np

from cotbert_core.errors import UserError
from pipelines.cleaning.filters import FILTERS, Rule
from pipelines.cleaning.options import CleanOptions
from pipelines.cleaning.splitting import split
from pipelines.cleaning.steps import STEPS
from pipelines.reading.readers import PREFIXES


@dataclass(frozen=True)
class Cleaned:
    """The N rows that are left, and what happened on the way.

    columns: for each text of a row its (N) strings. rows: (N,) int64, of each row the index of the
    row it comes from. changed: how many texts each step changed, how many rows `split` split.
    dropped: rows (or, after the split, sentences) by reason. A companion's names have a prefix.
    added: sentences beyond one a row: rows given + added = rows left + rows dropped.
    """

    columns: list[list[str]]
    rows: np.ndarray
    changed: Counter[str]
    dropped: Counter[str]
    added: int

    @property
    def texts(self) -> list[str]:
        """The first text of each row."""
        return self.columns[0]


@dataclass(frozen=True)
class Cleaner:
    """Cleans lists of texts; pickles. companions: how many texts each row has beside the first.

    UserError where rows with companions are to be split: nobody knows which sentences belong
    together.
    """

    options: CleanOptions
    companions: int = 0

    def __post_init__(self) -> None:
        if self.options.split is not None and self.companions:
            raise UserError(
                f"split is {self.options.split!r} and the rows have companion texts, whose "
                "sentences cannot be matched: split before the companions are made, or leave "
                "split out"
            )

    def __call__(self, texts: Sequence[str]) -> Cleaned:
        """Rows of one text each, of one line with single blanks."""
        return self.clean_rows([texts])

    def clean_rows(self, columns: Sequence[Sequence[str]]) -> Cleaned:
        """Rows of several texts, a list for each text; a row stays when all of its texts do."""
        work = _Work([list(column) for column in columns])
        if not all(map(all, columns)):
            work.drop(_is_empty)
        for name in self.options.steps:
            work.change(name)
        if self.options.split is not None:
            work.split(self.options.split)
        for make in FILTERS.values():
            rule = make(self.options)
            if rule is not None:
                work.drop(rule)
        rows = np.asarray(work.rows, np.int64)
        return Cleaned(work.columns, rows, +work.changed, work.dropped, work.added)


def _is_empty(text: str, reason: str = "empty") -> str | None:
    return None if text else reason


@dataclass
class _Work:
    """Rows on their way."""

    columns: list[list[str]]
    rows: list[int] = field(init=False)
    changed: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    added: int = 0

    def __post_init__(self) -> None:
        self.rows = list(range(len(self.columns[0])))

    def change(self, name: str) -> None:
        """One step on every text; rows with a text that it empties are dropped."""
        emptied = 0
        for number, (prefix, before) in enumerate(zip(PREFIXES, self.columns, strict=False)):
            after = list(map(STEPS[name], before))
            # A step returns the object it was given where it changes nothing.
            different = sum(map(is_not, after, before))
            if different:
                empty = after.count("")
                self.changed[prefix + name] += different - empty
                self.columns[number] = after
                emptied += empty
        if emptied:
            self.drop(partial(_is_empty, reason=f"emptied_by_{name}"))

    def split(self, language: str) -> None:
        """Each row to as many rows as its one text has sentences."""
        texts, rows = [], []
        for row, text in zip(self.rows, self.columns[0], strict=True):
            sentences = split(text, language)
            self.changed["split"] += len(sentences) > 1
            texts += sentences
            rows += [row] * len(sentences)
        self.added += len(texts) - len(self.rows)
        self.columns, self.rows = [texts], rows

    def drop(self, rule: Rule) -> None:
        """Take out the rows of which any text has a reason; the first one's is counted."""
        reasons = [list(map(rule, column)) for column in self.columns]
        told = reasons[0] if len(reasons) == 1 else list(map(_first_reason, *reasons))
        if any(told):
            self.dropped.update(filter(None, told))
            keep = [reason is None for reason in told]
            self.columns = [list(compress(column, keep)) for column in self.columns]
            self.rows = list(compress(self.rows, keep))


def _first_reason(*reasons: str | None) -> str | None:
    """Of one row's texts, in their order."""
    return next((p + r for p, r in zip(PREFIXES, reasons, strict=False) if r is not None), None)
