"""Find the texts of a few ids in the input that `cotbert embed` read."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cotbert_core.errors import UserError, counted
from cotbert_core.messages.redaction import without_credentials
from pipelines.cleaning.steps import cleaning
from pipelines.embedding.job import SHARD_BYTES
from pipelines.reading import sources
from pipelines.reading.columns import check_reading
from pipelines.reading.ids import INT64
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan, Shard, row_in_file
from pipelines.reading.readers import read


def input_plan(
    manifest: Mapping[str, Any],
    inputs: Sequence[str],
    text_column: str,
    encoding: str | None = None,
) -> ReadPlan:
    """Return the plan of the input whose ids the embeddings have; UserError if it does not match.

    manifest: of the embeddings. encoding: that of its text files, None for the encoding of the
    embedded input.
    """
    whole_files = "documents" in manifest
    id_column = None if whole_files else manifest.get("id_column")
    given, encoding = encoding, encoding or manifest.get("encoding")
    plan = sources.plan(
        inputs,
        text_column,
        id_column,
        SHARD_BYTES,  # that of `embed`: on it depend the row numbers of wrapped texts
        encoding=encoding,
        delimiter=manifest.get("delimiter"),
        limit=manifest.get("limit"),
        wrapped="wrapped" in manifest,
        whole_files=whole_files,
    )
    # The delimiter is that of the embedded input, which may have had another format.
    check_reading(replace(plan, encoding=given, delimiter=None))
    clean = cleaning(manifest.get("clean", ()))
    # A part of the input may hold only whole numbers.
    plan = replace(plan, id_type=manifest.get("id_type", INT64), clean=clean)
    files = manifest.get("files")
    # Row numbers depend on a file's position among all files.
    if plan.id_column is None and files not in (None, len(plan.files)):
        raise UserError(
            f"--text names {counted(len(plan.files), 'file')} and the embeddings were made from "
            f"{files}, whose order decides the ids: name the whole input of `cotbert embed`"
        )
    return plan


def column_cleaning(manifest: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function that cleans a text of a kept column as `cotbert embed --clean` did."""
    clean = cleaning(manifest.get("clean", ()))
    return (lambda text: clean(" ".join(text.split()))) if clean else str


def texts_of(
    plan: ReadPlan, ids: Mapping[int, int | str], was_embedded: Callable[[int, str], bool]
) -> dict[int, str]:
    """Return the text of each row whose id is in the input, by row number.

    ids: of the rows. was_embedded: whether a text is the one that was embedded for a row. If the
    input has an id several times, the text is that one, or else the first. Reading stops when all
    are found. Row numbers determine the shard; ids of a column may be in any shard.
    """
    missing, rows_of = set(ids), defaultdict[int | str, list[int]](list)
    for row, row_id in ids.items():
        rows_of[row_id].append(row)
    numbers = (number for number in rows_of if isinstance(number, int))
    shards = plan.shards if plan.id_column else _shards_of(plan, numbers)
    found: dict[int, str] = {}
    for piece in read_texts(plan, shards) if missing else ():
        for row_id, text in zip(piece.ids, piece.texts, strict=True):
            for row in missing.intersection(rows_of.get(row_id, ())):
                found.setdefault(row, text)
                if was_embedded(row, text):
                    found[row] = text
                    missing.remove(row)
        if not missing:
            break
    return found


def places_of(plan: ReadPlan, ids: Mapping[int, int | str]) -> dict[int, str]:
    """Return FILE:ROW, rows counted from 1, of each row whose id is its number in one of several
    files. ids: of the rows. Files below the working directory have their paths from there."""
    if plan.id_column or len(plan.files) == 1:
        return {}
    here = os.path.join(os.getcwd(), "")
    places = {}
    for row, row_id in ids.items():
        number = int(row_id)
        name = without_credentials(plan.file_of(number).removeprefix(here))
        places[row] = f"{name}:{row_in_file(number) + 1}"
    return places


def read_texts(plan: ReadPlan, shards: Iterable[Shard]) -> Iterator[Piece]:
    """Yield the pieces of the shards; at the end, UserError if none of the rows has a text."""
    rows = usable = 0
    for shard in shards:
        for piece in read(shard, plan):
            rows += piece.read
            usable += len(piece.texts)
            yield piece
    if rows and not usable:
        wanted = f"a text in the column {','.join(plan.text_columns)!r}"
        wanted += f" and an id in {plan.id_column!r}" if plan.id_column else ""
        raise UserError(
            f"none of the {rows:,} rows read from the input that --text names has {wanted}: name "
            "the input and --text-column of `cotbert embed`"
        )


def _shards_of(plan: ReadPlan, ids: Iterable[int]) -> list[Shard]:
    """Return the shards with rows of these numbers."""
    firsts = [shard.first_row for shard in plan.shards]
    numbers = {bisect_right(firsts, row_id) - 1 for row_id in ids}
    return [plan.shards[number] for number in sorted(numbers) if number >= 0]
