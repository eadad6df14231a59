"""Rows that files lose because they cannot be read: how many, why, and what to do about it.

A file that loses more than LEAST_SHARE of its rows, or any to another encoding or to a quote that
is never closed, gives a sentence for the screen and the manifest. The same input gives the same
sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pipelines.reading.encoding_guess import guess_encoding
from pipelines.reading.formats import COMPRESSIBLE
from pipelines.reading.line_reader import file_lines
from pipelines.reading.read_plan import Plan, Shard
from pipelines.reading.readers import PREFIXES

LEAST_SHARE = 0.01
# Files that get a sentence each; of the others there is one that counts them.
MOST_FILES = 5
# Lines before the first that is not UTF-8 which may show that the file is UTF-8 nevertheless.
LINES_BEFORE = 100_000
# What is part of any text file, and sentences of SICK without partners; the other reasons mean that
# something is wrong.
HARMLESS = {
    *(f"{prefix}{reason}" for prefix in PREFIXES for reason in ("empty", "null")),
    "no_entailment",
    "no_contradiction",
}
# Keys of counts: rows lost by reason, and the number of the first of them in its file, from 1.
LOST, FIRST = "lost.", "first."
_ROW = (1 << 40) - 1
# What to do about rows of a reason.
_ADVICE = {
    "binary": "hold zero bytes: is it a text file?",
    "extra_cells": "have more cells than the header: put texts with separators into quotes",
    "bad_id": "have no id of the kind that the first rows have",
    "invalid_json": "are not JSON: one object a line is needed",
    "duplicate_key": "give their text twice",
    "not_text": "hold something other than text",
    "too_long": "have more than 1,000,000 characters",
    "invalid_encoding": "are invalid in the encoding that was given: name another --encoding",
}


def count_lost(rows: Iterable[tuple[str, int]], counts: Counter[str]) -> None:
    """Add rows that could not be used, as (reason, number), to the counts of a shard."""
    for reason, number in rows:
        if reason in HARMLESS:
            continue
        counts[f"{LOST}{reason}"] += 1
        counts.setdefault(f"{FIRST}{reason}", (number & _ROW) + 1)


@dataclass
class _File:
    read: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Reason -> (row, number of its shard) of the first."""


@dataclass
class LostRows:
    """What the files of a plan lost, shard by shard in any order."""

    plan: Plan
    _files: dict[str, _File] = field(default_factory=dict)

    def add(self, shard: int, counts: Mapping[str, int]) -> None:
        """counts: `read`, and what `count_lost` adds; other keys are left alone."""
        file = self._files.setdefault(self.plan.shards[shard].path, _File())
        file.read += counts.get("read", 0)
        for key, number in counts.items():
            if key.startswith(LOST):
                file.lost[key.removeprefix(LOST)] += number
            elif key.startswith(FIRST):
                reason, place = key.removeprefix(FIRST), (number, shard)
                file.first[reason] = min(place, file.first.get(reason, place))

    def warnings(self) -> list[str]:
        """Return a sentence for each file that lost rows, in the order of their names."""
        named = [name for name in sorted(self._files) if _is_told(self._files[name])]
        told = [self._sentence(name, self._files[name]) for name in named[:MOST_FILES]]
        rest = named[MOST_FILES:]
        if rest:
            lost = sum(self._files[name].lost.total() for name in rest)
            told.append(f"{len(rest):,} more files lost {lost:,} rows, the first {rest[0]!r}")
        return told

    def _sentence(self, name: str, file: _File) -> str:
        lost = file.lost.total()
        parts = [
            f"{count:,} {self._advice(reason, *file.first.get(reason, (1, 0)))}"
            for reason, count in sorted(file.lost.items(), key=lambda item: (-item[1], item[0]))
        ]
        share = f"{100 * lost / max(file.read, 1):.1f} %"
        return f"input {name!r} lost {lost:,} of {file.read:,} rows ({share}): {'; '.join(parts)}"

    def _advice(self, reason: str, row: int, shard: int) -> str:
        plain = next(
            (r for p in PREFIXES[:0:-1] if (r := reason.removeprefix(p)) != reason), reason
        )
        if plain == "invalid_utf8":
            return encoding_advice(self.plan.shards[shard], row)
        if plain == "unclosed_quote":
            return (
                f"from row {row:,} on follow a quote that is never closed: close it, or write a "
                "quote inside a cell twice"
            )
        return _ADVICE.get(plain, f"are dropped as {reason}")


def _is_told(file: _File) -> bool:
    always = any(reason.endswith(("invalid_utf8", "unclosed_quote")) for reason in file.lost)
    return file.lost.total() > LEAST_SHARE * file.read or always


def encoding_advice(shard: Shard, row: int) -> str:
    """Return what the rows of a shard that are not UTF-8 are likely in, of which the first is
    `row` of its file, from 1, and what to do. Its lines are read again from a little before."""
    if shard.kind not in COMPRESSIBLE:
        return "are not UTF-8: write the file again"
    before = max(0, row - 1 - (shard.first_row & _ROW) - LINES_BEFORE)
    guess = guess_encoding(islice(file_lines(shard.path, shard.start, shard.stop), before, None))
    if guess is None:
        return "are not UTF-8"
    if guess.mixed:
        return f"are not UTF-8, though others are (such as {guess.example!r}): mend those lines"
    if guess.encoding is None:
        return "are not UTF-8: name their encoding with --encoding"
    return (
        f"are not UTF-8 but read as {guess.encoding} ({guess.example!r}): give "
        f"--encoding {guess.encoding}"
    )


def found_notes(plan: Plan, cleaned: bool = False) -> list[str]:
    """Return what the first bytes of the files showed, a sentence for each thing.

    cleaned: whether markup is taken out.
    """
    notes = []
    if plan.found.markup and not cleaned:
        notes.append(
            f"input {_files(plan.found.markup)} HTML tags, which become part of the sentences: "
            "`cotbert prepare --clean markup` takes them out"
        )
    if plan.found.utf8:
        notes.append(
            f"input {_files(plan.found.utf8)} text that looks like UTF-8, and --encoding is "
            f"{plan.encoding}: leave that out if letters come out wrong"
        )
    if examples := {name: id for name, id in plan.found.text_ids.items() if id}:
        notes.append(
            f"input {_files(list(examples))} ids in column {plan.id_column!r} that are no whole "
            f"numbers, such as {next(iter(examples.values()))[:40]!r}: all ids are kept as text"
        )
    return notes


def _files(names: list[str]) -> str:
    return (
        f"{names[0]!r} holds"
        if len(names) == 1
        else f"{names[0]!r} and {len(names) - 1:,} more hold"
    )
