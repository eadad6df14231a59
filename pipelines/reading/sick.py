"""Triples from SICK: the input `sick:DIR`, where DIR is the folder SICK of SentEval's data.

SICK (Marelli et al., LREC 2014) labels pairs of sentences A and B ENTAILMENT, CONTRADICTION or
NEUTRAL. Supervised training needs triples (sentence, entailment, contradiction), made as follows:

- Entailment is directed from A to B. Contradiction is symmetric.
- A sentence with E entailments and at least one contradiction gives E triples, one for each
  entailment, which take the contradictions in turn, cyclically.
- A distinct sentence without an entailment counts as a row dropped as `no_entailment`, and one with
  an entailment but no contradiction as a row dropped as `no_contradiction`. An unusable line is a
  dropped row too, so rows read = triples + dropped rows.

Only SICK_train.txt is read: SICK_trial.txt and SICK_test_annotated.txt are evaluation data.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from cotbert_core.errors import UserError

PREFIX = "sick:"
TRAIN_FILE = "SICK_train.txt"
COLUMNS = ("sentence_A", "sentence_B", "entailment_judgment")
ENTAILMENT, CONTRADICTION, NEUTRAL = "ENTAILMENT", "CONTRADICTION", "NEUTRAL"

Triple = tuple[str, str, str]


def train_file(item: str) -> Path:
    """Return the file that the input `sick:DIR` refers to."""
    return Path(item.removeprefix(PREFIX)).expanduser().absolute() / TRAIN_FILE


def check(item: str) -> None:
    """Raise UserError unless the file exists and has the columns in COLUMNS."""
    path = train_file(item)
    if not path.is_file():
        raise UserError(
            f"input {item!r}: {str(path.parent)!r} holds no {TRAIN_FILE}; give the folder SICK of "
            "SentEval's data"
        )
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        header = _fields(next(lines, ""))
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise UserError(
            f"{str(path)!r} has no column {missing[0]!r}: it has {', '.join(header)}; give the "
            "tab-separated file of SentEval's data"
        )


def triples(path: Path) -> Iterator[Triple | str]:
    """Yield each row: a triple, or the reason why a line or a sentence gives none."""
    sentences: dict[str, None] = {}  # dictionaries as ordered sets
    entailments: defaultdict[str, dict[str, None]] = defaultdict(dict)
    contradictions: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for pair in _pairs(path):
        if isinstance(pair, str):
            yield pair
            continue
        first, second, label = pair
        sentences |= dict.fromkeys((first, second))
        if label == ENTAILMENT:
            entailments[first][second] = None
        elif label == CONTRADICTION:
            contradictions[first][second] = contradictions[second][first] = None
    for sentence in sentences:
        if sentence not in entailments:
            yield "no_entailment"
        elif sentence not in contradictions:
            yield "no_contradiction"
        else:
            # Not strict, since the cycle is infinite.
            turn = zip(entailments[sentence], cycle(contradictions[sentence]), strict=False)
            yield from ((sentence, entailment, other) for entailment, other in turn)


def _pairs(path: Path) -> Iterator[Triple | str]:
    """Yield the pairs with their labels, or the reason why a line holds none."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        header = _fields(next(lines))
        places = [header.index(column) for column in COLUMNS]
        for line in lines:
            yield _pair(_fields(line), places)


def _pair(fields: list[str], places: list[int]) -> Triple | str:
    if len(fields) <= max(places):
        return "null" if any(fields) else "empty"
    first, second, label = (" ".join(fields[place].split()) for place in places)
    if not (first and second):
        return "empty"
    try:
        f"{first}{second}".encode()
    except UnicodeEncodeError:
        return "invalid_utf8"
    if label not in (ENTAILMENT, CONTRADICTION, NEUTRAL):
        return "unknown_label"
    return first, second, label


def _fields(line: str) -> list[str]:
    return line.rstrip("\n").split("\t")
