"""Read the rows of a shard; unusable rows are dropped and counted by reason.

A row has a text and the paired texts that the plan names. It is dropped if any of them is unusable;
the reason says which one: `empty` for the text, `augmented_empty` for a paired text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from cotbert_core.errors import ReadError, UserError, first_line
from pipelines.reading import arrow_readers, docstrings, pieces, text_readers
from pipelines.reading.bad_rows import INVALID_UTF8, PREFIXES, BadRow, RawRows, ShortRow, Unusable
from pipelines.reading.documents import document_id, has_no_value, is_tagged
from pipelines.reading.formats import OF_TEXT
from pipelines.reading.ids import as_id
from pipelines.reading.locations import is_uri
from pipelines.reading.lost_rows import HARMLESS
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan, Shard
from pipelines.reading.wrapped_lines import paragraphs_of

# Maximum characters of a text; tokenizing a text of 50 MB takes gigabytes.
MOST_CHARACTERS = 1_000_000
# A text that ends a sentence, also a Chinese one, perhaps in quotes or brackets.
_ENDED = re.compile(r"[.?!:;\u2026\u3002\uff01\uff1f][\"')\]\u2019\u201d]*$")
_CONTROLS = re.compile(r"[\x01-\x1f\x7f-\x9f ]+")
# The clean texts of a row, or why it cannot be used.
_Texts = list[str] | Unusable


def read(shard: Shard, plan: ReadPlan) -> Iterator[Piece]:
    """Yield the usable rows of a shard in pieces, with white space folded.

    If the plan keeps paragraphs, a text has a line for each. Raises UserError if the file is
    truncated or unreadable.
    """
    tagged, by_column = is_tagged(shard.kind, plan), plan.document_column is not None
    last = plan.text_parts(shard.kind) + len(plan.paired_columns)
    piece, characters = Piece.empty(plan, tagged), 0
    for number, raw_id, values, texts in _numbered_rows(shard, plan):
        piece.read += 1
        if isinstance(values, ShortRow):
            piece.short.append(number)
        row_id = as_id(raw_id, plan.id_type) if plan.id_column else None
        if plan.id_column and row_id is None and not isinstance(texts, Unusable):
            texts = Unusable("bad_id", texts[0])
        if by_column and not isinstance(texts, Unusable) and has_no_value(values[last]):
            texts = Unusable("no_document", texts[0])
        if isinstance(texts, Unusable):
            named = plan.encoding and shard.kind in OF_TEXT
            reason = texts.replace(INVALID_UTF8, "invalid_encoding") if named else str(texts)
            shown_id = raw_id if row_id is None else row_id
            piece.bad.append(BadRow(number, shown_id, reason, texts.excerpt))
        else:
            row_id = number if row_id is None else row_id
            characters += piece.add(number, row_id, texts, values[last:])
        if piece.read == pieces.PIECE_ROWS or characters >= pieces.PIECE_CHARACTERS:
            yield piece
            piece, characters = Piece.empty(plan, tagged), 0
    yield piece


def _numbered_rows(
    shard: Shard, plan: ReadPlan
) -> Iterator[tuple[int, Any, Sequence[Any], _Texts]]:
    """Yield the rows of a shard, or a row for each of its files, with their numbers."""
    rows_of = _whole_file if plan.whole_files else _clean_rows
    for part in shard.parts:
        for number, row in enumerate(rows_of(part, plan), start=part.first_row):
            yield number, *row


def _clean_rows(shard: Shard, plan: ReadPlan) -> Iterator[tuple[Any, Sequence[Any], _Texts]]:
    """Yield the id, the values and the clean texts of each row."""
    parts = plan.text_parts(shard.kind)
    last = parts + len(plan.paired_columns)
    for raw_id, values in raw_rows(shard, plan):
        yield raw_id, values, _clean_row(values, parts, last, plan)


def _whole_file(shard: Shard, plan: ReadPlan) -> Iterator[tuple[str, Sequence[Any], _Texts]]:
    """Yield the path of a file and the texts of its rows as one. A row without text is left out;
    one that cannot be used for another reason makes the file unusable."""
    found: list[str] = []
    characters = 0
    nothing = Unusable("empty")
    for _, _, texts in _clean_rows(shard, replace(plan, id_column=None)):
        if isinstance(texts, Unusable):
            if texts in HARMLESS:
                nothing = nothing if texts in ("empty", "null") else texts
                continue
            break
        found.append(texts[0])
        characters += len(texts[0]) + 1
        if characters > MOST_CHARACTERS:
            texts = Unusable("too_long", found[0])
            break
    else:
        texts = [" ".join(found)] if found else nothing
    yield plan.document_names[shard.path], (), texts


def raw_rows(shard: Shard, plan: ReadPlan) -> RawRows:
    """Yield the id and the values of each row of a shard, or why the row cannot be used."""
    try:
        yield from islice(_READERS[shard.kind](shard, plan), shard.most)
    except (OSError, EOFError, pa.ArrowException) as error:
        what = f"input {shard.path!r} cannot be read to its end ({first_line(error)})"
        # A damaged file has no number of the system's errors.
        if getattr(error, "errno", None) or is_uri(shard.path):
            raise ReadError(f"{what}: give the same command again, or leave it out") from None
        raise UserError(f"{what}: copy it again or leave it out") from None


def _clean_row(
    values: Sequence[Any] | Unusable, parts: int, last: int, plan: ReadPlan
) -> list[str] | Unusable:
    """Return the row's texts with single blanks, or why it is dropped.

    parts: number of values that make up its text. last: that of the values of all its texts.
    """
    if isinstance(values, Unusable):
        return values
    if last == 1:  # as in most inputs, which are read in two thirds of the time
        text = _clean_text(values[:1], plan)
        return text if isinstance(text, Unusable) else [text]
    texts = []
    for prefix, some in zip(PREFIXES, (values[:parts], *zip(values[parts:last])), strict=False):
        text = _clean_text(some, plan)
        if isinstance(text, Unusable):
            return Unusable(prefix + text, text.excerpt)
        texts.append(text)
    return texts


def _clean_text(values: Sequence[Any], plan: ReadPlan) -> str | Unusable:
    """Return values as one clean text, or why it cannot be used."""
    several, paragraphs = len(values) > 1, plan.keep_paragraphs
    text = _join(values, paragraphs) if several else _folded(values[0], paragraphs)
    if plan.clean is None or isinstance(text, Unusable):
        return text
    return plan.clean(text) or Unusable("emptied_by_cleaning", text)


def _join(values: Sequence[Any], keep_paragraphs: bool) -> str | Unusable:
    """Return values as one text, in which each value ends a sentence, or why it cannot be used.

    One of several values may be missing, such as the title of a text. keep_paragraphs: whether each
    value is on lines of its own.
    """
    texts = []
    for value in values:
        text = _folded(value, keep_paragraphs)
        if not isinstance(text, Unusable):
            texts.append(text)
        elif text not in ("null", "empty"):
            return text
    if not texts:
        return Unusable("empty")
    ended = (text if _ENDED.search(text) else f"{text}." for text in texts[:-1])
    return ("\n" if keep_paragraphs else " ").join([*ended, texts[-1]])


def _folded(value: Any, keep_paragraphs: bool) -> str | Unusable:
    """Return one text with single blanks, or why it cannot be used."""
    if isinstance(value, Unusable):
        return value
    text = value
    if isinstance(value, bytes):
        if len(value) > 4 * MOST_CHARACTERS:  # not decoded, since many rows may share the value
            return Unusable("too_long", value)
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return Unusable(INVALID_UTF8, value)
    if not isinstance(text, str):
        return Unusable("null" if value is None else "not_text", value)
    if len(text) > MOST_CHARACTERS:
        return Unusable("too_long", value)
    if "\0" in text:
        return Unusable("binary", value)
    text = paragraphs_of(text) if keep_paragraphs else " ".join(text.split())
    if _CONTROLS.fullmatch(text):
        return Unusable("control_characters", value)
    return text or Unusable("empty", value)


def _read_docstrings(shard: Shard, plan: ReadPlan) -> RawRows:
    copy = 0
    for name in shard.files:
        for sentences in docstrings.documents(Path(name)):
            if plan.documents is None:
                yield from ((None, (sentence,)) for sentence in sentences)
                continue
            tag = document_id("\n".join(sentences)), copy
            yield from ((None, (sentence, tag)) for sentence in sentences)
            copy += 1


_READERS: dict[str, Callable[[Shard, ReadPlan], RawRows]] = {
    "txt": text_readers.read_txt,
    "csv": text_readers.read_delimited,
    "tsv": text_readers.read_delimited,
    "jsonl": text_readers.read_jsonl,
    "parquet": arrow_readers.read_parquet,
    "docstrings": _read_docstrings,
    "hub": arrow_readers.read_hub,
}
