"""Check that a file has the columns that a plan names, and that their types are right."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from cotbert_core.errors import UserError
from cotbert_core.training.batches import COLUMNS
from pipelines.reading.bad_rows import Unusable
from pipelines.reading.delimited import delimited_rows
from pipelines.reading.delimiters import NAMES, WORDS, other_delimiter
from pipelines.reading.encoding_guess import guess_encoding
from pipelines.reading.formats import DELIMITERS, OF_TEXT, WITH_COLUMNS, kind_of
from pipelines.reading.line_reader import json_objects
from pipelines.reading.read_plan import KEEP, ReadPlan
from pipelines.runtime.progress import say_once

# Sentence, entailment and contradiction in SimCSE's nli_for_simcse.csv.
TRIPLES = ("sent0", "sent1", "hard_neg")
# The options that name the columns of a row's texts.
COLUMN_OPTIONS = ("--text-column", *(f"--{name}-column" for name in COLUMNS))
# `cotbert search` reads the same column.
ID_OPTION = "--id-column of `cotbert embed`"

# The line by which spreadsheets learn the delimiter of a csv file.
_EXCELS_LINE = re.compile("sep=(.)", re.IGNORECASE)
# Maximum number of JSON lines that are searched for the columns before the job starts.
SAMPLED_LINES = 10_000


def check_types(name: str, plan: ReadPlan, schema: pa.Schema) -> None:
    """Raise UserError unless text columns have text, dictionaries of text or only nulls, and the id
    column whole numbers or text. The types that embeddings depend on are stored in the plan."""
    plan.found.types[name] = {f.name: f.type for f in schema if f.name in ("id", *plan.keep)}
    for column in plan.texts:
        kind = schema.field(column).type
        if not _is_text(kind):
            raise UserError(
                f"{name!r}, column {column!r} is of type {kind}: it must be text; write it as "
                "text, or name another column"
            )
    if plan.id_column is None or fits_int64(schema.field(plan.id_column).type):
        return
    kind = schema.field(plan.id_column).type
    if pa.types.is_null(kind) or not (_is_text(kind) or pa.types.is_uint64(kind)):
        raise UserError(
            f"{name!r}, column {plan.id_column!r} is of type {kind}: ids must be whole numbers or "
            "text"
        )
    plan.found.text_ids[name] = ""


def fits_int64(kind: pa.DataType) -> bool:
    """Return whether all values of a type are whole numbers of int64."""
    return pa.types.is_integer(kind) and not pa.types.is_uint64(kind)


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_kind(inner) for is_kind in _TEXTS)


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


def header(name: str, delimiter: str, encoding: str | None = None) -> list[str]:
    """Return the column names of a csv or tsv file."""
    cells = next(delimited_rows(name, delimiter, encoding), [])
    if isinstance(cells, Unusable):
        raise UserError(f"the first line of {name!r} names no columns ({cells}): correct it")
    if noted := _EXCELS_LINE.fullmatch(delimiter.join(cells)):
        raise UserError(
            f"the first line of {name!r} is {noted[0]!r}, which only spreadsheets read: delete it, "
            f"and give --delimiter {WORDS.get(noted[1], noted[1])!r} or, to a command without that "
            "option, a converted file"
        )
    return cells


def check_columns(name: str, plan: ReadPlan, found: Sequence[str]) -> None:
    """Raise UserError if a column of the plan is missing or not unique."""
    options = dict.fromkeys(plan.text_columns, COLUMN_OPTIONS[0])
    options |= dict(zip(plan.paired_columns, COLUMN_OPTIONS[1:], strict=False))
    if plan.id_column:
        options[plan.id_column] = ID_OPTION
    options = {**dict.fromkeys(plan.keep, plan.keep_option), **options}
    for column in options:
        if found.count(column) > 1:
            raise UserError(f"{name!r} has {found.count(column)} columns {column!r}: rename them")
    missing = [column for column in options if column not in found]
    if not missing:
        return
    delimiter = plan.delimiter_of(kind_of(name) or "")
    if delimiter and (other := other_delimiter(delimiter, found, missing[0])):
        raise UserError(
            f"{name!r} is not separated by {NAMES.get(delimiter, repr(delimiter))} but by "
            f"{NAMES[other]}: give --delimiter {WORDS.get(other, other)!r} or, to a command "
            "without that option, a converted file"
        )
    _check_writing(name, missing[0], found)
    there = f"it has {', '.join(found) or 'none'}"
    use = f"name one with {options[missing[0]]}"
    if plan.texts == TRIPLES and missing[0] in TRIPLES:
        use = f"name them with {', '.join(COLUMN_OPTIONS)} in place of --triples"
    raise UserError(f"{name!r} has no column {missing[0]!r}: {there}; {use}")


def _check_writing(name: str, column: str, found: Sequence[str]) -> None:
    """Raise UserError for a header that is not UTF-8, or a column that only looks like the named
    one."""
    raw = ",".join(found).encode("utf-8", "surrogateescape")
    if guess := guess_encoding([raw]):
        raise UserError(
            f"the header of {name!r} is not UTF-8 (perhaps {guess.example!r}): give --encoding "
            f"{guess.encoding or 'NAME'}"
        )
    for one in found:
        if unicodedata.normalize("NFC", one).strip() == unicodedata.normalize("NFC", column):
            raise UserError(
                f"{name!r} has no column {column!r} but {one!a}, with blanks around it or its "
                "accents as characters of their own: rename it in the file"
            )


# The options of reading that concern some formats alone.
_CONCERNS = {
    "text_column": WITH_COLUMNS,
    "delimiter": set(DELIMITERS),
    "encoding": OF_TEXT,
}


def idle_options(inputs: Sequence[str]) -> set[str]:
    """Return which of text_column, delimiter and encoding concern none of the files; a folder may
    have files of any format."""
    kinds = set(map(kind_of, inputs))
    if None in kinds:
        return set()
    return {option for option, some in _CONCERNS.items() if not kinds & some}


def check_reading(plan: ReadPlan, also: Sequence[str] = ()) -> None:
    """Raise UserError for a text column, a delimiter or an encoding that concerns no file.

    also: further input that is read with the same options.
    """
    first, idle = plan.files[0], idle_options([*plan.files, *also])
    if "text_column" in idle and plan.text_columns != ("text",):
        raise UserError(
            f"input {first!r} has no columns and so no {','.join(plan.text_columns)!r}: leave out "
            "--text-column, or rename the file to .csv or .tsv if it is a table"
        )
    for option in idle - {"text_column"}:
        if (value := getattr(plan, option)) is not None:
            raise UserError(
                f"{option} is {value!r} and the input, such as {first!r}, has no file of "
                f"{' or '.join(sorted(_CONCERNS[option]))}: leave out --{option}"
            )


def check_json_columns(name: str, plan: ReadPlan, lines: Iterator[bytes | None]) -> None:
    """Raise UserError if a column of the plan is in none of the first JSON lines of a file.

    Columns of --keep may be in another file: `check_kept_keys` looks for them in the keys that are
    stored in the plan.
    """
    wanted = {*plan.texts, *plan.keep, *filter(None, [plan.id_column])}
    found = set[str]()
    for row in json_objects(islice(lines, SAMPLED_LINES)):
        found.update(row)
        if found >= wanted:
            break
    plan.found.json_keys |= found
    plan.found.unread |= next(lines, None) is not None
    if found:
        keep = () if plan.keep_option == KEEP else plan.keep
        check_columns(name, replace(plan, keep=keep), sorted(found))


def check_kept_keys(plan: ReadPlan) -> None:
    """Raise UserError if no row of JSON files has a column of --keep; show a warning if none of the
    first rows has it, since later ones may."""
    keys = plan.found.json_keys
    missing = [column for column in plan.keep if column not in keys]
    if not missing or not keys or {*map(kind_of, plan.files)} != {"jsonl"}:
        return
    if not plan.found.unread:
        check_columns(plan.files[0], plan, sorted(keys))
    say_once(
        f"warning: none of the first {SAMPLED_LINES:,} rows of each file has the key "
        f"{missing[0]!r} that --keep names"
    )
