"""Graded sentence pairs, and the Spearman correlation of cosines and grades."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cotbert_core.errors import UserError, counted
from cotbert_core.evaluation.geometry import alignment, uniformity
from cotbert_core.files import read_text

Encode = Callable[[Sequence[str]], np.ndarray]
COLUMNS = ("score", "sentence1", "sentence2")
# The number of a row's line, and its values by column.
Row = tuple[int, Mapping[str, str | None]]


@dataclass(frozen=True)
class EncodeFunctions:
    """An encoder's functions from N sentences to (N, D) vectors.

    queries: None if queries are encoded like other texts.
    """

    texts: Encode
    queries: Encode | None = None

    def wrapped(self, wrap: Callable[[Encode], Encode]) -> EncodeFunctions:
        """Return each function as `wrap` returns it."""
        return EncodeFunctions(wrap(self.texts), self.queries and wrap(self.queries))


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs left[i], right[i] with grades gold[i], 0 (unrelated) to 5 (same meaning).

    On another scale only the alignment has no meaning.
    """

    left: list[str]
    right: list[str]
    gold: np.ndarray

    def __len__(self) -> int:
        return len(self.left)


def sentence_groups(parts: Sequence[Pairs]) -> list[np.ndarray]:
    """Return the group (N,) of each pair of the N of each part, from 0 through all parts.

    A group is the pairs that are resampled together: those whose more frequent sentence is the
    same, so also equal ones. Their cosines depend on each other by the vector of that sentence.
    Of comparisons of all-MiniLM-L6-v2 with and without noise in its vectors, on STS12, 11 to 15 %
    called one of two equal encoders better when only equal pairs were together, so 7 %.
    """
    sides = [list(zip(one.left, one.right, strict=True)) for one in parts]
    uses = Counter(sentence for some in sides for pair in some for sentence in pair)
    known: dict[str, int] = {}
    shared = [[max(pair, key=lambda one: (uses[one], one)) for pair in some] for some in sides]
    return [np.array([known.setdefault(one, len(known)) for one in some], int) for some in shared]


@dataclass(frozen=True)
class PairScores:
    """The scores of an encoder on N pairs.

    spearman: correlation x 100. alignment, uniformity: geometry of the same vectors. cosine: (N,)
    predicted similarities.
    """

    spearman: float
    alignment: float
    uniformity: float
    cosine: np.ndarray


def read_pairs(path: str | Path, split: str | None = None) -> Pairs:
    """Return pairs from a tab-separated file with the columns score, sentence1 and sentence2.

    split: only use rows with this value in the column `split`, if the file has that column. Raises
    UserError with the line number of an invalid row.
    """
    path = Path(path)
    rows = pair_rows(path)
    chosen = [row for row in rows if split is None or row[1].get("split", split) == split]
    if rows and not chosen:
        others = dict.fromkeys(repr(values["split"]) for _, values in rows)
        raise UserError(
            f"pairs file {str(path)!r} has no rows of split {split!r}, only of "
            f"{', '.join(others)}: rename one, or leave the column out"
        )
    return pairs_of(path, chosen)


def pair_rows(path: Path) -> list[Row]:
    """Return the rows of a pairs file; UserError if it cannot be read or lacks a column."""
    if not path.is_file():
        why = "is not a file" if path.exists() else "does not exist"
        raise UserError(f"pairs file {str(path)!r} {why}: give a tab-separated file")
    lines = io.StringIO(read_text(path, "pairs file"))
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    found: list[Row] = []
    try:
        _check_columns(path, rows.fieldnames or ())
        for row in rows:
            found.append((rows.line_num, row))
            if row.get("split", "") is None:
                raise UserError(f"{path}, line {rows.line_num}: it has no split: give all columns")
            if None in row:  # cells without a column: a tab in a sentence moves the others
                raise UserError(
                    f"{path}, line {rows.line_num}: it has "
                    f"{counted(len(row[None]), 'more column')} than the first line: "
                    "take the tabs out of its sentences"
                )
    except csv.Error as error:
        raise UserError(
            f"{path}, line {rows.line_num + 1}: it cannot be read as columns separated by tabs "
            f"({error}): shorten it or leave it out"
        ) from None
    return found


def _check_columns(path: Path, names: Sequence[str]) -> None:
    if twice := [name for name in COLUMNS if names.count(name) > 1]:
        raise UserError(
            f"pairs file {str(path)!r} has the column {twice[0]!r} twice: rename one of them"
        )
    if missing := [name for name in COLUMNS if name not in names]:
        raise UserError(
            f"pairs file {str(path)!r} has no column {missing[0]!r}: its first line must be "
            "the column names score, sentence1 and sentence2, separated by tabs"
        )


def pairs_of(path: Path, rows: Sequence[Row]) -> Pairs:
    """Return the pairs of some rows of a file; UserError with the line number of an invalid one."""
    left, right, gold = [], [], []
    for line, row in rows:
        left.append(_text(row["sentence1"], path, line))
        right.append(_text(row["sentence2"], path, line))
        gold.append(grade(row["score"], path, line))
    check_grades(gold, path)
    return Pairs(left, right, np.array(gold))


def _text(value: str | None, path: Path, line: int) -> str:
    words = (value or "").split()
    if not words:
        raise UserError(f"{path}, line {line}: a sentence is empty: give both sentences")
    return " ".join(words)


def check_grades(gold: Collection[float], path: Path) -> None:
    """Raise UserError if the grades of a file are all equal: a correlation is then undefined."""
    if len(set(gold)) < 2:
        raise UserError(
            f"pairs file {str(path)!r} has {len(gold)} pairs with {len(set(gold))} different "
            "scores: a correlation needs at least 2"
        )


def grade(value: str | None, path: Path, line: int) -> float:
    """Return the grade in a line of a file; UserError if it is not a finite number."""
    try:
        number = float(value or "")
    except ValueError:
        number = math.nan
    # float also takes 1_0 for 10.
    if "_" in (value or "") or not math.isfinite(number):
        raise UserError(f"{path}, line {line}: score is {value!r}: give a number")
    return number


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the cosines (N,) of left (N, D) and right (N, D), in float64.

    They are rounded: the cosine of a vector and itself differs from 1 in its last bits, by which
    pairs of equal sentences would be ranked (STS12's SMTeuroparl has 65: 63.67 in place of 63.75).
    """
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.maximum(norms, 1e-12)).round(12)


def spearman(cosine: np.ndarray, gold: np.ndarray) -> float:
    """Return the Spearman correlation x 100 of cosine (N,) and gold (N,); NaN for equal values."""
    from scipy.stats import spearmanr  # imported here, since it takes 1.2 s

    if not (np.ptp(cosine) and np.ptp(gold)):  # else scipy warns with a line of this file
        return float("nan")
    return float(spearmanr(cosine, gold).statistic) * 100


def encode_distinct(encode: Encode, *groups: Sequence[str]) -> list[np.ndarray]:
    """Return the vectors of each group of sentences; each distinct sentence is encoded once.

    Raises UserError if a sentence has no vector, or if a vector is not finite: no score of it would
    mean anything.
    """
    place: dict[str, int] = {}
    rows = [np.array([place.setdefault(s, len(place)) for s in group], int) for group in groups]
    vectors = np.asarray(encode(list(place)))  # which may be lists or a tensor
    if vectors.ndim != 2 or len(vectors) != len(place):
        raise UserError(
            f"the encoder gives an array of the shape {vectors.shape} for "
            f"{counted(len(place), 'sentence')}: let it give a vector for each"
        )
    if not np.isfinite(vectors).all():
        raise UserError(
            "the encoder gives vectors that are not finite, so its training has diverged: use the "
            "model of an earlier step"
        )
    return [vectors[r] for r in rows]


def score_pairs(encode: Encode, pairs: Pairs) -> PairScores:
    """Return Spearman and geometry of an encoder on graded pairs.

    Alignment is over pairs with a grade above 4, as on the STS scale from 0 to 5, and uniformity
    over all distinct sentences.
    """
    distinct = dict.fromkeys([*pairs.left, *pairs.right])
    left, right, vectors = encode_distinct(encode, pairs.left, pairs.right, [*distinct])
    cosine = cosines(left, right)
    similar = pairs.gold > 4.0
    return PairScores(
        spearman=spearman(cosine, pairs.gold),
        alignment=alignment(left[similar], right[similar]) if similar.any() else float("nan"),
        uniformity=uniformity(vectors),
        cosine=cosine,
    )
