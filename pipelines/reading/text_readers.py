"""The raw rows of text files: txt, JSON lines, csv and tsv."""

from __future__ import annotations

import json
from typing import Any

from cotbert_core.training.batches import COLUMNS
from pipelines.reading.bad_rows import INVALID_UTF8, RawRows, ShortRow, Unusable
from pipelines.reading.delimited import delimited_rows
from pipelines.reading.documents import PARAGRAPH, paragraphs
from pipelines.reading.ids import id_of_cell
from pipelines.reading.line_reader import file_lines
from pipelines.reading.read_plan import KEEP, ReadPlan, Shard
from pipelines.reading.wrapped_lines import unwrapped


def read_txt(shard: Shard, plan: ReadPlan) -> RawRows:
    """Yield each line, or each text whose lines are wrapped, as a row."""
    lines = file_lines(shard.path, shard.start, shard.stop, plan.encoding)
    rows = paragraphs(lines) if plan.documents == PARAGRAPH else zip(lines, strict=True)
    for row in unwrapped(rows) if plan.wrapped else rows:
        yield None, Unusable("too_long") if row[0] is None else row


def read_jsonl(shard: Shard, plan: ReadPlan) -> RawRows:
    """Yield each line's JSON object as a row."""
    # Letters beyond ASCII may be written as they are or as escapes.
    quoted_keys = [
        {json.dumps(column, ensure_ascii=escaped).encode() for escaped in (True, False)}
        for column in plan.texts
    ]
    # Rows without a document or a label are counted by those who need one.
    kept = set(plan.keep if plan.keep_option == KEEP else ())
    for line in file_lines(shard.path, shard.start, shard.stop, plan.encoding):
        if line is None:
            yield None, Unusable("too_long")
            continue
        try:
            row = json.loads(line)
        except UnicodeDecodeError:
            yield None, Unusable(INVALID_UTF8, line)
            continue
        except (ValueError, RecursionError):  # RecursionError: brackets nested too deep
            yield None, Unusable("invalid_json" if line.strip() else "empty", line)
            continue
        if not isinstance(row, dict):
            yield None, Unusable("invalid_json", line)
            continue
        row_id = row.get(plan.id_column or "")
        if missing := _missing(row, plan):
            yield row_id, Unusable(f"no_{missing}_column", line)
        elif any(sum(map(line.count, keys)) > 1 for keys in quoted_keys) and _has_twice(line, plan):
            yield row_id, Unusable("duplicate_key", line)
        else:
            passthrough = (row.get(column) for column in plan.keep)
            values = [*(_utf8(row.get(column)) for column in plan.texts), *passthrough]
            yield row_id, values if kept <= row.keys() else ShortRow(values)


def _missing(row: dict[str, Any], plan: ReadPlan) -> str | None:
    """Return the corpus name of the first text whose columns are missing in a JSON row."""
    if not any(column in row for column in plan.text_columns):
        return "text"
    names = zip(COLUMNS, plan.paired_columns, strict=False)
    return next((name for name, column in names if column not in row), None)


def _has_twice(line: bytes, plan: ReadPlan) -> bool:
    """Return whether a JSON row has one of its texts twice: all but the last would be lost."""
    pairs = json.loads(line, object_pairs_hook=list)  # the outermost object's come last
    keys = [key for key, _ in pairs]
    return any(keys.count(column) > 1 for column in plan.texts)


def read_delimited(shard: Shard, plan: ReadPlan) -> RawRows:
    """Yield each row of a csv or tsv file."""
    rows = delimited_rows(shard.path, plan.delimiter_of(shard.kind), plan.encoding)
    header = list(next(rows, []))  # checked when the file was split
    text_places = [header.index(column) for column in plan.texts]
    passthrough = [header.index(column) for column in plan.keep]
    id_place = header.index(plan.id_column) if plan.id_column else len(header)
    for row in rows:
        if isinstance(row, Unusable):
            yield None, row
        elif any(cell.strip() for cell in row[len(header) :]):
            # An unquoted text contains a delimiter, and its rest would be lost.
            yield None, Unusable("extra_cells", ",".join(row))
        else:
            texts = [_utf8(row[place]) if place < len(row) else None for place in text_places]
            values = [*texts, *(row[place] if place < len(row) else None for place in passthrough)]
            row_id = id_of_cell(row[id_place], plan.id_type) if id_place < len(row) else None
            yield row_id, ShortRow(values) if len(row) < len(header) else values


def _utf8(text: Any) -> Any:
    """Return the value, or Unusable for a text with lone surrogates: its bytes were not UTF-8."""
    if isinstance(text, str):
        try:
            text.encode()
        except UnicodeEncodeError:
            return Unusable(INVALID_UTF8, text)
    return text
