"""The rows of a shard, one format at a time: unusable rows are dropped and counted by reason.

A row is its text and the companions that the plan asks for. It is dropped when any of them cannot
be used; the reason then tells which: `empty` is the text's, `augmented_empty` a companion's.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cotbert_core.errors import UserError
from cotbert_core.training.batches import COLUMNS
from pipelines.reading import docstrings, hub_datasets, sick
from pipelines.reading.bad_rows import BadRow, Unusable
from pipelines.reading.delimited import delimited_rows
from pipelines.reading.formats import COMPRESSIBLE, DELIMITERS
from pipelines.reading.ids import as_id, id_of_cell
from pipelines.reading.line_reader import file_lines
from pipelines.reading.parquet_batches import batches, split
from pipelines.reading.read_plan import Plan, Shard

# Rows in one piece of a shard: enough to sort by length, little to hold.
PIECE_ROWS = 8192
# Characters of its texts, by which a piece of long ones has fewer rows: 2,048 a row. 16 to 64 MiB,
# since Python takes 1 to 4 bytes for a character.
PIECE_CHARACTERS = 16 << 20
# What the reasons of a row's first, second and third text begin with.
PREFIXES = ("", *(f"{name}_" for name in COLUMNS))
# A longer text is no sentence; to tokenize 50 MB of one takes gigabytes.
MOST_CHARACTERS = 1_000_000
_UTF8 = "invalid_utf8"
_CONTROLS = re.compile(r"[\x01-\x1f\x7f-\x9f ]+")


@dataclass
class Piece:
    """Up to PIECE_ROWS usable rows, fewer where they hold more than PIECE_CHARACTERS, and how many
    rows were read and dropped on the way.

    numbers: of the rows, which are their ids where no column is. companions: for each companion
    its text in every row. kept: for each column that the plan keeps
    its value in every row. bad: the rows that were dropped.
    """

    ids: list[int | str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    companions: list[list[str]] = field(default_factory=list)
    kept: list[list[Any]] = field(default_factory=list)
    read: int = 0
    bad: list[BadRow] = field(default_factory=list)

    @property
    def dropped(self) -> Counter[str]:
        """Rows that were dropped, by reason."""
        return Counter(row.reason for row in self.bad)


def read(shard: Shard, plan: Plan) -> Iterator[Piece]:
    """The rows of a shard in pieces: white space folded, unusable rows dropped and counted.

    UserError when the file breaks off or cannot be read.
    """
    piece, characters = _new_piece(plan), 0
    for number, (row_id, values) in enumerate(_rows(shard, plan), start=shard.first_row):
        piece.read += 1
        texts = _clean_row(values, len(plan.texts))
        known = as_id(row_id, plan.id_type) if plan.id_column else None
        if plan.id_column and known is None and not isinstance(texts, Unusable):
            texts = Unusable("bad_id", texts[0])
        if isinstance(texts, Unusable):
            named = plan.encoding and shard.kind in COMPRESSIBLE
            reason = texts.replace(_UTF8, "invalid_encoding") if named else str(texts)
            shown = row_id if known is None else known
            piece.bad.append(BadRow(number, shown, reason, texts.excerpt))
        else:
            piece.numbers.append(number)
            piece.ids.append(number if known is None else known)
            piece.texts.append(texts[0])
            for column, text in zip(piece.companions, texts[1:], strict=True):
                column.append(text)
            characters += sum(map(len, texts))
            for kept, value in zip(piece.kept, values[len(plan.texts) :], strict=True):
                kept.append(value)
                characters += size_of(value)
        if piece.read == PIECE_ROWS or characters >= PIECE_CHARACTERS:
            yield piece
            piece, characters = _new_piece(plan), 0
    yield piece


def size_of(value: Any) -> int:
    """Characters of a kept value, with 8 for what is no text and for each value of a list."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return 8 + sum(map(size_of, value.values()))
    return 8 + sum(map(size_of, value)) if isinstance(value, list) else 8


def _rows(shard: Shard, plan: Plan) -> Values:
    try:
        yield from _READERS[shard.kind](shard, plan)
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"input {shard.path!r} cannot be read to its end ({reason}): copy it again or leave "
            "it out"
        ) from None


def _new_piece(plan: Plan) -> Piece:
    return Piece(companions=[[] for _ in plan.companions], kept=[[] for _ in plan.keep])


def _clean_row(values: Sequence[Any] | Unusable, count: int) -> list[str] | Unusable:
    """The row's texts, the first `count` values, with single blanks, or why it cannot be used."""
    if isinstance(values, Unusable):
        return values
    texts = []
    for prefix, value in zip(PREFIXES, values[:count], strict=False):
        text = _clean(value)
        if isinstance(text, Unusable):
            return Unusable(prefix + text, text.excerpt if text is value else value)
        texts.append(text)
    return texts


def _clean(value: Any) -> str:
    """One sentence with single blanks, or why there is none."""
    if isinstance(value, Unusable):
        return value
    if value is None:
        return Unusable("null")
    if isinstance(value, bytes):
        if len(value) > 4 * MOST_CHARACTERS:  # not decoded: a dictionary gives it to many rows
            return Unusable("too_long")
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            return Unusable("invalid_utf8")
    if not isinstance(value, str):
        return Unusable("not_text")
    if len(value) > MOST_CHARACTERS:
        return Unusable("too_long")
    if "\0" in value:
        return Unusable("binary")
    text = " ".join(value.split())
    if _CONTROLS.fullmatch(text):
        return Unusable("control_characters")
    return text or Unusable("empty")


# Of each row its id and its texts in the plan's order, or why it has none.
Values = Iterator[tuple[Any, Sequence[Any] | Unusable]]


def _read_txt(shard: Shard, plan: Plan) -> Values:
    for line in file_lines(shard.path, shard.start, shard.stop, plan.encoding):
        yield None, Unusable("too_long") if line is None else (line,)


def _read_jsonl(shard: Shard, plan: Plan) -> Values:
    doubtful = [json.dumps(column).encode() for column in plan.texts]
    for line in file_lines(shard.path, shard.start, shard.stop, plan.encoding):
        if line is None:
            yield None, Unusable("too_long")
            continue
        try:
            row = json.loads(line)
        except UnicodeDecodeError:
            yield None, Unusable("invalid_utf8", line)
            continue
        except (ValueError, RecursionError):  # the latter: brackets nested too deep
            yield None, Unusable("invalid_json" if line.strip() else "empty", line)
            continue
        if not isinstance(row, dict):
            yield None, Unusable("invalid_json", line)
            continue
        row_id = row.get(plan.id_column or "")
        if missing := _missing(row, plan):
            yield row_id, Unusable(f"no_{missing}_column", line)
        elif any(line.count(c) > 1 for c in doubtful) and _has_twice(line, plan):
            yield row_id, Unusable("duplicate_key", line)
        else:
            kept = (row.get(column) for column in plan.keep)
            yield row_id, [*(_utf8(row[column]) for column in plan.texts), *kept]


def _missing(row: dict[str, Any], plan: Plan) -> str | None:
    """The first text, by its name in a corpus, whose column a row of JSON lacks."""
    names = zip(("text", *COLUMNS), plan.texts, strict=False)
    return next((name for name, column in names if column not in row), None)


def _has_twice(line: bytes, plan: Plan) -> bool:
    """Whether a row of JSON gives one of its texts twice, of which all but the last is lost."""
    pairs = json.loads(line, object_pairs_hook=list)  # the outermost object's come last
    keys = [key for key, _ in pairs]
    return any(keys.count(column) > 1 for column in plan.texts)


def _read_delimited(shard: Shard, plan: Plan) -> Values:
    rows = delimited_rows(shard.path, DELIMITERS[shard.kind], plan.encoding)
    header = list(next(rows, []))  # the plan has seen that it is one
    places = [header.index(column) for column in plan.texts]
    kept = [header.index(column) for column in plan.keep]
    id_place = header.index(plan.id_column) if plan.id_column else len(header)
    for row in rows:
        if isinstance(row, Unusable):
            yield None, row
        elif any(cell.strip() for cell in row[len(header) :]):
            # A comma in a text without quotes: its rest would be lost.
            yield None, Unusable("extra_cells", ",".join(row))
        else:
            texts = [_utf8(row[place]) if place < len(row) else None for place in places]
            values = [*texts, *(row[place] if place < len(row) else None for place in kept)]
            known = id_of_cell(row[id_place], plan.id_type) if id_place < len(row) else None
            yield known, values


def _utf8(text: Any) -> Any:
    """A text whose bytes were no UTF-8 holds lone surrogates, which do not encode."""
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError:
            return Unusable("invalid_utf8", text)
    return text


def _read_parquet(shard: Shard, plan: Plan) -> Values:
    groups = range(shard.start, shard.stop)
    for batch in batches(shard.path, groups, _columns(plan), PIECE_ROWS):
        yield from _from_arrow(batch, plan)


def _read_hub(shard: Shard, plan: Plan) -> Values:
    for start in range(shard.start, shard.stop, PIECE_ROWS):
        table = hub_datasets.rows(shard.path, start, min(start + PIECE_ROWS, shard.stop))
        for batch in table.select(_columns(plan)).to_batches():
            for part in split(batch):
                yield from _from_arrow(part, plan)


def _columns(plan: Plan) -> list[str]:
    return list(dict.fromkeys([*plan.texts, *filter(None, [plan.id_column]), *plan.keep]))


def _from_arrow(batch: pa.RecordBatch, plan: Plan) -> Values:
    values = [_as_bytes(batch.column(name)) for name in plan.texts]
    values += [_as_python(batch.column(name)) for name in plan.keep]
    ids = _ids(batch.column(plan.id_column)) if plan.id_column else [None] * len(batch)
    yield from zip(ids, zip(*values, strict=True), strict=True)


def _ids(column: pa.Array) -> list[Any]:
    return column.to_pylist() if pa.types.is_integer(column.type) else _as_bytes(column)


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    """Texts as bytes, since pyarrow does not check that a string column holds UTF-8."""
    if pa.types.is_dictionary(column.type):
        return _shared(column, _as_bytes)
    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values


def _shared(column: pa.DictionaryArray, convert: Callable[[pa.Array], list[Any]]) -> list[Any]:
    """The values of a dictionary column, equal ones as one object: its longest text may stand in
    every row."""
    indices = column.indices
    used = indices.unique().drop_null()
    values = dict(zip(used.to_pylist(), convert(column.dictionary.take(used)), strict=True))
    return [None if index is None else values[index] for index in indices.to_pylist()]


def _as_python(column: pa.Array) -> list[Any]:
    """The values of a column that is handed on; bytes of a string column that are no UTF-8 become
    the sign for that."""
    if pa.types.is_dictionary(column.type):
        return _shared(column, _as_python)
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [v if v is None else v.decode("utf-8", "replace") for v in _as_bytes(column)]
    return values


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
    "hub": _read_hub,
}
