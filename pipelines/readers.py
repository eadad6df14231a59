"""The rows of a shard, one format at a time: unusable rows are dropped and counted by reason."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import docstrings
from pipelines.sources import DELIMITERS, Plan, Shard

# Rows in one piece of a shard: enough to sort by length, little to hold.
PIECE_ROWS = 8192


class Unusable(str):
    """Stands in a row's place: the reason why it cannot be used."""

    __slots__ = ()


@dataclass
class Piece:
    """Up to PIECE_ROWS usable rows, and how many rows were read and dropped on the way."""

    ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def read(shard: Shard, plan: Plan) -> Iterator[Piece]:
    """The rows of a shard in pieces: white space folded, unusable rows dropped and counted."""
    piece = Piece()
    for number, (row_id, value) in enumerate(_READERS[shard.kind](shard, plan)):
        piece.read += 1
        text = _clean(value)
        if plan.id_column is None:
            row_id = shard.first_row + number
        elif not isinstance(text, Unusable) and not _is_id(row_id):
            text = Unusable("bad_id")
        if isinstance(text, Unusable):
            piece.dropped[str(text)] += 1
        else:
            piece.ids.append(row_id)
            piece.texts.append(text)
        if piece.read == PIECE_ROWS:
            yield piece
            piece = Piece()
    yield piece


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


Values = Iterator[tuple[Any, Any]]


def _read_txt(shard: Shard, plan: Plan) -> Values:
    for line in _lines(shard):
        yield None, line


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
        elif plan.text_column not in row:
            yield None, Unusable("no_text_column")
        else:
            yield row.get(plan.id_column or ""), _utf8(row[plan.text_column])


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
            yield row_id, _utf8(row[plan.text_column])


def _utf8(text: Any) -> Any:
    """A text whose bytes were no UTF-8 holds lone surrogates, which do not encode."""
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError:
            return Unusable("invalid_utf8")
    return text


def _read_parquet(shard: Shard, plan: Plan) -> Values:
    columns = [plan.text_column, *([plan.id_column] if plan.id_column else [])]
    parquet = pq.ParquetFile(shard.path)
    groups = list(range(shard.start, shard.stop))
    for batch in parquet.iter_batches(PIECE_ROWS, row_groups=groups, columns=columns):
        # As bytes, since pyarrow does not check that a string column holds UTF-8.
        texts = batch.column(plan.text_column).cast(pa.large_binary()).to_pylist()
        ids = batch.column(plan.id_column).to_pylist() if plan.id_column else [None] * len(texts)
        yield from zip(ids, texts, strict=True)


def _read_docstrings(shard: Shard, plan: Plan) -> Values:
    for name in shard.files:
        for sentence in docstrings.sentences(Path(name)):
            yield None, sentence


_READERS: dict[str, Callable[[Shard, Plan], Values]] = {
    "txt": _read_txt,
    "csv": _read_delimited,
    "tsv": _read_delimited,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "docstrings": _read_docstrings,
}
