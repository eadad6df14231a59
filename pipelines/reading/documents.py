"""Find the document of each row, as the plan's `documents` defines it.

row: each row's text, or each docstring, is a document of one or more sentences. file: the rows of
a file. paragraph: the lines of a txt file between blank lines. column:NAME: all rows of the input
with the same value in that column.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from cotbert_core.errors import UserError
from pipelines.reading.formats import is_file, kind_of
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan, Shard

ROW, FILE, PARAGRAPH, COLUMN = "row", "file", "paragraph", "column:"
# Maximum number of bytes of a paragraph that are hashed, since a file may be a single paragraph.
MOST_HASHED = 16 << 20


def document_id(text: str | bytes) -> int:
    """Return the id of a document: 63 bits of the hash of its text, path or value."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1


def is_tagged(kind: str, plan: ReadPlan) -> bool:
    """Return whether the reader of this format adds (document id, copy) to each row."""
    return plan.documents == PARAGRAPH or (plan.documents == ROW and kind == "docstrings")


def documents_of(piece: Piece, shard: Shard, plan: ReadPlan) -> tuple[Sequence[int], Sequence[int]]:
    """Return the document id and the copy of each row.

    Adjacent rows with the same document id and different copies belong to two equal documents.
    """
    if is_tagged(shard.kind, plan):
        tags = piece.passthrough[-1]
        return [document for document, _ in tags], [copy for _, copy in tags]
    if plan.documents == ROW:
        # The breaks between paragraphs do not tell documents apart.
        found = [document_id(text.replace("\n", " ")) for text in piece.texts]
        return found, piece.numbers
    if plan.documents == FILE:
        found = [document_id(plan.document_names[shard.path])] * len(piece.texts)
    else:
        found = [document_id(as_text(value)) for value in piece.passthrough[0]]
    return found, [0] * len(found)


def as_text(value: Any) -> str:
    """Return a value of a column as text, the same for 3 and 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas makes integers floats where one is missing
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def has_no_value(value: Any) -> bool:
    """Return whether a value of a column, such as that of the documents, is missing or blank."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return not as_text(value).strip()


def paragraphs(lines: Iterable[bytes | None]) -> Iterator[tuple[bytes | None, tuple[int, int]]]:
    """Yield each line, blank ones included, with the tag of its paragraph."""
    held: list[bytes | None] = []
    size = copy = 0
    tag: tuple[int, int] | None = None
    for line in lines:
        if line is not None and not line.strip():
            yield from zip(held, repeat(_tag(held, copy)), strict=False)
            yield line, (0, copy)
            held, size, tag, copy = [], 0, None, copy + 1
        elif tag is not None:
            yield line, tag
        else:
            held.append(line)
            size += len(line or b"")
            if size >= MOST_HASHED:
                tag = _tag(held, copy)
                yield from zip(held, repeat(tag), strict=False)
                held = []
    yield from zip(held, repeat(_tag(held, copy)), strict=False)


def _tag(lines: Sequence[bytes | None], copy: int) -> tuple[int, int]:
    return document_id(b" ".join(b" ".join(line or b"" for line in lines).split())), copy


def check_documents(plan: ReadPlan, splits: bool) -> None:
    """Raise UserError if the input has no such documents. splits: whether texts are split."""
    by, kinds = plan.documents, {kind_of(name) or "" for name in plan.files}
    if by == ROW and kinds - {"docstrings"} and plan.paired_columns:
        raise UserError(
            "documents is 'row' and the rows have paired texts, which cannot be split into "
            "sentences: give --documents column:NAME, or leave out the paired texts"
        )
    if by == ROW and kinds - {"docstrings"} and not splits:
        raise UserError(
            "documents is 'row' and texts are not split into sentences: name their language with "
            "--split, e.g. --split en"
        )
    if by == PARAGRAPH and (others := kinds - {"txt"}):
        raise UserError(
            f"documents is 'paragraph' and the input is {', '.join(sorted(others))}: only txt, md "
            "and rst files have paragraphs; give --documents row or --documents column:NAME"
        )
    if by == FILE:
        check_files(plan)
    if by == FILE and len(plan.files) < 2:
        raise UserError(
            f"documents is 'file' and the input is the single file {plan.files[0]!r}: give more "
            "files (with --limit, more rows), or --documents row, paragraph or column:NAME"
        )


def check_files(plan: ReadPlan) -> None:
    """Raise UserError if a part of the input, such as docstrings, is not files of a user."""
    kinds = {kind_of(name) or "" for name in plan.files}
    if others := {kind for kind in kinds if not is_file(kind)}:
        raise UserError(
            f"documents is 'file' and the input is {', '.join(sorted(others))}, whose files are "
            "not documents: give --documents row, or leave it out for `cotbert embed`"
        )
