"""The rows of a shard, one format at a time: unusable rows are dropped and counted by reason.

A row is its text and the companions that the plan asks for. It is dropped when any of them cannot
be used; the reason then tells which: `empty` is the text's, `augmented_empty` a companion's.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.batch import COLUMNS
from pipelines import docstrings, sick
from pipelines.sources import DELIMITERS, Plan, Shard

# Rows in one piece of a shard: enough to sort by length, little to hold.
PIECE_ROWS = 8192
# What the reasons of a row's first, second and third text begin with.
PREFIXES = ("", *(f"{name}_" for name in COLUMNS))


class Unusable(str):
    """Stands in a row's place: the reason why it cannot be used."""

    __slots__ = ()


@dataclass
class Piece:
    """Up to PIECE_ROWS usable rows, and how many rows were read and dropped on the way.

    companions: for each companion its text in every row.
    """

    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    companions: list[list[str]] = field(default_factory=list)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def read(shard: Shard, plan: Plan) -> Iterator[Piece]:
    """The rows of a shard in pieces: white space folded, unusable rows dropped and counted."""
    piece = _new_piece(plan)
    for number, (row_id, values) in enumerate(_READERS[shard.kind](shard, plan)):
        piece.read += 1
        texts = _clean_row(values)
        if plan.id_column is None:
            row_id = shard.first_row + number
        elif not isinstance(texts, Unusable) and not _is_id(row_id):
            texts = Unusable("bad_id")
        if isinstance(texts, Unusable):
            piece.dropped[str(texts)] += 1
        else:
            piece.ids.append(row_id)
            piece.texts.append(texts[0])
            for column, text in zip(piece.companions, texts[1:], strict=True):
                column.append(text)
        if piece.read == PIECE_ROWS:
            yield piece
            piece = _new_piece(plan)
    yield piece


def _new_piece(plan: Plan) -> Piece:
    return Piece(companions=[[] for _ in plan.companions])


def _clean_row(values: Sequence[Any] | Unusable) -> list[str] | Unusable:
    """The row's texts with single blanks, or why the row cannot be used."""
    if isinstance(values, Unusable):
        return values
    texts = []
    for prefix, value in zip(PREFIXES, values, strict=False):
        text = _clean(value)
        if isinstance(text, Unusable):
            return Unusable(prefix + text)
        texts.append(text)
    return texts


def _clean(value: Any) -> str:
    """One sentence with single blanks, or why there is none."""
    if isinstance(value, Unusable):
        return value
    if value is None:
        return Unusable("null")
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            return Unusable("invalid_utf8")
    if not isinstance(value, str):
        return Unusable("not_text")
    return " ".join(value.split()) or Unusable("empty")


def _is_id(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


# Of each row its id and its texts in the plan's order, or why it has none.
Values = Iterator[tuple[Any, Sequence[Any] | Unusable]]


def _read_txt(shard: Shard, plan: Plan) -> Values:
    for line in _lines(shard):
        yield None, (line,)


def _read_jsonl(shard: Shard, plan: Plan) -> Values:
    for line in _lines(shard):
        try:
            row = json.loads(line)
        except UnicodeDecodeError:
            yield None, Unusable("invalid_utf8")
            continue
        except (ValueError, RecursionError):  # the latter: brackets nested too deep
            yield None, Unusable("invalid_json" if line.strip() else "empty")
            continue
        if not isinstance(row, dict):
            yield None, Unusable("invalid_json")
        elif missing := _missing(row, plan):
            yield None, Unusable(f"no_{missing}_column")
        else:
            yield row.get(plan.id_column or ""), [_utf8(row[column]) for column in plan.texts]


def _missing(row: dict[str, Any], plan: Plan) -> str | None:
    """The first text, by its name in a corpus, whose column a row of JSON lacks."""
    names = zip(("text", *COLUMNS), plan.texts, strict=False)
    return next((name for name, column in names if column not in row), None)


def _lines(shard: Shard) -> Iterator[bytes]:
    with open(shard.path, "rb") as file:
        file.seek(shard.start)
        data = file.read(shard.stop - shard.start)
    if shard.start == 0:
        data = data.removeprefix(b"\xef\xbb\xbf")
    yield from data.removesuffix(b"\n").split(b"\n") if data else ()


def _read_delimited(shard: Shard, plan: Plan) -> Values:
    csv.field_size_limit(sys.maxsize)
    with open(shard.path, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        for row in csv.DictReader(lines, delimiter=DELIMITERS[shard.kind]):
            number = row.get(plan.id_column or "")
            try:
                row_id = int(number) if number is not None else None
            except ValueError:
                row_id = None
            yield row_id, [_utf8(row[column]) for column in plan.texts]


def _utf8(text: Any) -> Any:
    """A text whose bytes were no UTF-8 holds lone surrogates, which do not encode."""
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError:
            return Unusable("invalid_utf8")
    return text


def _read_parquet(shard: Shard, plan: Plan) -> Values:
    columns = [*plan.texts, *([plan.id_column] if plan.id_column else [])]
    parquet = pq.ParquetFile(shard.path)
    groups = list(range(shard.start, shard.stop))
    for batch in parquet.iter_batches(PIECE_ROWS, row_groups=groups, columns=columns):
        # As bytes, since pyarrow does not check that a string column holds UTF-8.
        texts = [batch.column(c).cast(pa.large_binary()).to_pylist() for c in plan.texts]
        ids = batch.column(plan.id_column).to_pylist() if plan.id_column else [None] * len(batch)
        yield from zip(ids, zip(*texts, strict=True), strict=True)


def _read_docstrings(shard: Shard, plan: Plan) -> Values:
    for name in shard.files:
        for sentence in docstrings.sentences(Path(name)):
            yield None, (sentence,)


def _read_sick(shard: Shard, plan: Plan) -> Values:
    for row in sick.triples(sick.train_file(shard.path)):
        yield None, Unusable(row) if isinstance(row, str) else row


_READERS: dict[str, Callable[[Shard, Plan], Values]] = {
    "txt": _read_txt,
    "csv": _read_delimited,
    "tsv": _read_delimited,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "docstrings": _read_docstrings,
    "sick": _read_sick,
}
