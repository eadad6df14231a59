"""Warnings about unusable rows of files: how many, why, and what to do about it.

A file gets a warning on the screen and in the manifest if more than LEAST_SHARE of its rows are
unusable, or any row because of a wrong encoding or a quote that is never closed; and another one if
more than LEAST_SHARE have fewer cells than the header, or lack a kept key. The same input gives the
same warnings.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from cotbert_core.errors import counted
from pipelines.reading.bad_rows import FEWER_CELLS, PREFIXES
from pipelines.reading.encoding_guess import guess_encoding
from pipelines.reading.formats import OF_TEXT
from pipelines.reading.line_reader import file_lines
from pipelines.reading.read_plan import ReadPlan, Shard, row_in_file

LEAST_SHARE = 0.01
# Maximum number of files with a warning each; a last warning counts the others.
MOST_FILES = 5
# Lines read before the first that is not UTF-8, to see whether the rest of the file is.
LINES_BEFORE = 100_000
# Reasons with a warning even for a single row.
_ALWAYS = ("invalid_utf8", "invalid_encoding", "unclosed_quote")
# Reasons without a warning: any text file has empty lines, and cleaning may empty others.
HARMLESS = {
    *(f"{prefix}{reason}" for prefix in PREFIXES for reason in ("empty", "null")),
    "emptied_by_cleaning",
}
# Prefixes of count keys: the number of rows lost for a reason, and the first one (counted from 1).
LOST, FIRST = "lost.", "first."
_PREFIX = re.compile(f"^(?:{'|'.join(filter(None, PREFIXES))})")
# How a warning about rows lost for a reason continues.
_ADVICE = {
    "binary": "hold zero bytes: is it a text file?",
    "extra_cells": "have more cells than the header: put texts with separators into quotes; a cell "
    "of a tsv file holds no tab",
    "bad_id": "have no id, or one of another type than the first rows",
    "invalid_json": "are not JSON objects: write one on each line, as `jq -c '.[]'` does with a "
    "list",
    "no_text_column": "lack the column of the texts",
    "control_characters": "hold control characters only",
    "duplicate_key": "have the key of a text twice: give each text once",
    "no_document": "have no value in the column of --documents",
    "not_text": "hold a number, a list or an object in place of text: make it a text first, for "
    "example with jq",
    "too_long": "have more than 1,000,000 characters: divide them into shorter texts",
    "invalid_encoding": "are invalid in the given encoding: give another --encoding",
}
# What the short rows of a csv, tsv or jsonl file lack, and what to do about it.
_SHORT = {
    "csv": (
        "has fewer cells than the header",
        "if a line break within a text has split it, write a csv with its texts in quotes",
    ),
    "jsonl": ("lacks a key that --keep names", "its value is null there"),
}
# What files hold, by the keys of Found.files, and what to do about it.
_FOUND = {
    "markup": "HTML tags, which become part of the texts: --clean markup of prepare, adapt and "
    "embed removes them",
    "json": "JSON, whose names and brackets become part of the texts: rename it to .jsonl if each "
    "line is an object, and else convert it ('Other formats' in docs/settings.md)",
    "wrapped": "lines that end within a sentence, and each is read as a text: --wrapped of "
    "prepare, adapt and embed joins them",
    "carriage_returns": "carriage returns and no line feeds, so that each file is read as one "
    "line: convert them, for example with `tr '\\r' '\\n'`",
    "utf8": "text that looks like UTF-8, and --encoding is {encoding}: leave --encoding out if "
    "letters come out wrong",
}


def count_lost(rows: Iterable[tuple[str, int]], counts: Counter[str]) -> None:
    """Add unusable and short rows, as (reason, row number), to the counts of a shard."""
    for reason, number in rows:
        if reason in HARMLESS:
            continue
        counts[f"{LOST}{reason}"] += 1
        counts.setdefault(f"{FIRST}{reason}", row_in_file(number) + 1)


@dataclass
class LostRows:
    """The unusable rows of a plan's files; shards can be added in any order.

    read: number of rows of each file. _lost: number of its unusable rows by reason. _short: number
    of its rows with fewer cells than the header. _first: the first row of each file and reason,
    from 1, with its shard.
    """

    read: Counter[str] = field(default_factory=Counter)
    _lost: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _short: Counter[str] = field(default_factory=Counter)
    _first: dict[tuple[str, str], tuple[int, Shard]] = field(default_factory=dict)

    def add(self, shard: Shard, counts: Mapping[str, int]) -> None:
        """Add a shard's counts: `read` and the keys of `count_lost`; other keys are ignored."""
        file = shard.path
        self.read[file] += counts.get("read", 0)
        for key, number in counts.items():
            if key == f"{LOST}{FEWER_CELLS}":
                self._short[file] += number
            elif key.startswith(LOST):
                self._lost[file][key.removeprefix(LOST)] += number
            elif key.startswith(FIRST):
                reason, place = (file, key.removeprefix(FIRST)), (number, shard)
                self._first[reason] = min(place, self._first.get(reason, place), key=itemgetter(0))

    def warnings(self) -> list[str]:
        """Return a warning for each file that lost too many rows, and for each with too many short
        ones, sorted by file name."""
        named = [name for name in sorted(self._lost) if self._needs_warning(name)]
        warnings = [self._warning(name) for name in named[:MOST_FILES]]
        rest = named[MOST_FILES:]
        if rest:
            lost = sum(self._lost[name].total() for name in rest)
            rows = counted(lost, "row")
            warnings.append(f"{counted(len(rest), 'more file')} lost {rows}, the first {rest[0]!r}")
        return [*warnings, *self._short_warnings()]

    def _short_warnings(self) -> Iterator[str]:
        files = [n for n in sorted(self._short) if self._short[n] > LEAST_SHARE * self.read[n]]
        for name in files[:MOST_FILES]:
            count, read = self._short[name], self.read[name]
            row, shard = self._first[name, FEWER_CELLS]
            what, advice = _SHORT.get(shard.kind, _SHORT["csv"])
            share = f"{count:,} of {read:,} rows ({100 * count / read:.1f} %)"
            yield f"input {name!r} {what} in {share}, the first row {row:,}: {advice}"
        if rest := files[MOST_FILES:]:
            yield f"such rows are in {counted(len(rest), 'more file')}, the first {rest[0]!r}"

    def _needs_warning(self, name: str) -> bool:
        lost = self._lost[name]
        always = any(reason.endswith(_ALWAYS) for reason in lost)
        return lost.total() > LEAST_SHARE * self.read[name] or always

    def _warning(self, name: str) -> str:
        lost, read = self._lost[name], self.read[name]
        parts = [
            f"{count:,} {_advice(reason, *self._first[name, reason])}"
            for reason, count in sorted(lost.items(), key=lambda item: (-item[1], item[0]))
        ]
        share = f"{100 * lost.total() / max(read, 1):.1f} %"
        return (
            f"input {name!r} lost {lost.total():,} of {read:,} rows ({share}): {'; '.join(parts)}"
        )


def _advice(reason: str, row: int, shard: Shard) -> str:
    """Return the rest of a warning about rows lost for a reason. row: the first of them, from 1."""
    plain = _PREFIX.sub("", reason)
    if plain == "invalid_utf8":
        return encoding_advice(shard, row)
    if plain == "unclosed_quote":
        return (
            f"from row {row:,} on come after a quote that is never closed: close it, or double "
            "a quote that is part of a cell"
        )
    return _ADVICE.get(plain, f"are dropped as {reason}")


def encoding_advice(shard: Shard, row: int) -> str:
    """Return the rest of a warning about rows that are not UTF-8, with their likely encoding.

    row: the first such row in its file, from 1. The file is read again from LINES_BEFORE lines
    before it.
    """
    if shard.kind not in OF_TEXT:
        return "are not UTF-8: write the file again"
    before = max(0, row - 1 - row_in_file(shard.first_row) - LINES_BEFORE)
    guess = guess_encoding(islice(file_lines(shard.path, shard.start, shard.stop), before, None))
    if guess is None and shard.kind == "jsonl":  # all bytes are UTF-8
        return "hold half a character, an escape such as \\ud83d alone: write both halves"
    if guess is None:
        return "are not UTF-8"
    if guess.mixed:
        return f"are not UTF-8, though others are (such as {guess.example!r}): correct those lines"
    if guess.encoding is None:
        return "are not UTF-8: give their encoding with --encoding, if the file is a text"
    return (
        f"are not UTF-8 but read as {guess.encoding} ({guess.example!r}): give "
        f"--encoding {guess.encoding}"
    )


def found_notes(plan: ReadPlan, cleaned: bool = False) -> list[str]:
    """Return the warnings about what was found in the first bytes of the files.

    cleaned: whether the job removes markup.
    """
    notes = [
        f"input {_files(plan.found.files[what])} {note.format(encoding=plan.encoding)}"
        for what, note in _FOUND.items()
        if plan.found.files[what] and not (cleaned and what == "markup")
    ]
    if examples := {name: id for name, id in plan.found.text_ids.items() if id}:
        notes.append(
            f"input {_files(list(examples))} ids in column {plan.id_column!r} that are not plain "
            f"whole numbers of 64 bits, such as {next(iter(examples.values()))[:40]!r}: all ids "
            "are written as text"
        )
    return notes


def _files(names: list[str]) -> str:
    return (
        f"{names[0]!r} holds"
        if len(names) == 1
        else f"{names[0]!r} and {len(names) - 1:,} more hold"
    )
