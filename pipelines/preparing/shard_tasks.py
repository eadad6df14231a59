"""The first pass of `cotbert prepare` as a task that Ray Data runs on the workers.

It writes the files of pipelines.preparing.scratch_files, which the second pass
(pipelines.preparing.part_tasks) reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError
from pipelines.cleaning.cleaner import Cleaner
from pipelines.preparing.exclusion import not_excluded
from pipelines.preparing.placing import Placing
from pipelines.preparing.scratch_files import CHANGED, DROPPED, scratch_writer, shard_file
from pipelines.preparing.token_bounds import EarlyBounds
from pipelines.reading.bad_rows import reasons_of
from pipelines.reading.documents import document_id
from pipelines.reading.lost_rows import FIRST, HARMLESS, count_lost, encoding_advice
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan
from pipelines.reading.readers import read
from pipelines.storage.corpus import text_columns
from pipelines.storage.resumable_output import write_json_atomic


@dataclass(frozen=True)
class Rules:
    """The rules that decide which rows of a shard stay.

    excluded: keys of the excluded sentences. words: whether to count the words of rows.
    """

    on_invalid: str
    cleaner: Cleaner
    excluded: frozenset[bytes]
    near_duplicates: float | None
    words: bool = False
    early_bounds: EarlyBounds | None = None


@dataclass(frozen=True)
class ReadShard:
    """The first pass: write shard `numbers[id]` to scratch files and return its counts."""

    plan: ReadPlan
    numbers: tuple[int, ...]
    scratch: Path
    rules: Rules

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = self.numbers[int(row["id"])]
        counts: Counter[str] = Counter()
        unusable: Counter[str] = Counter()
        names = text_columns(self.plan.columns)
        shard, rules, scratch = self.plan.shards[number], self.rules, self.scratch
        placed = self.plan.documents is not None or rules.words
        placing = Placing(shard, self.plan, rules.words) if placed else None
        with scratch_writer(scratch, number, names, rules.near_duplicates, placed) as writer:
            for piece in read(shard, self.plan):
                unusable += piece.dropped
                count_lost(piece.faults, counts)
                texts, places = self._kept(piece, placing, counts)
                writer.add(_row_ids(texts, places), texts, places)
            self._refuse_invalid(number, unusable, counts)
        if placing:
            placing.write_sizes(scratch, number)
        counts.update({f"{DROPPED}{reason}": n for reason, n in unusable.items()})
        counts["kept"] = writer.rows
        write_json_atomic(shard_file(scratch, number, "json"), counts)
        return {"number": number, "counts": counts}

    def _kept(
        self, piece: Piece, placing: Placing | None, counts: Counter[str]
    ) -> tuple[list[list[str]], np.ndarray | None]:
        """Return the texts of the rows that stay, by column, and their places.

        Rows are only dropped here, and counted by reason.
        """
        cleaned = self.rules.cleaner([piece.texts, *piece.paired_texts])
        counts["read"] += piece.read
        counts["added"] += cleaned.added
        counts.update({f"{DROPPED}{reason}": n for reason, n in cleaned.dropped.items()})
        counts.update({f"{CHANGED}{step}": n for step, n in cleaned.changed.items()})
        columns, places = cleaned.columns, placing(piece, cleaned) if placing else None
        if self.rules.excluded:
            stays = np.flatnonzero(not_excluded(columns, self.rules.excluded, counts))
            columns, places = _taken(columns, places, stays)
        if self.rules.early_bounds:
            stays = self.rules.early_bounds.rows(columns, counts)
            columns, places = _taken(columns, places, stays)
        return columns, places

    def _refuse_invalid(
        self, number: int, unusable: Counter[str], counts: Mapping[str, int]
    ) -> None:
        bad = {reason: n for reason, n in unusable.items() if reason not in HARMLESS}
        if bad and self.rules.on_invalid == "fail":
            shard, first = self.plan.shards[number], counts.get(f"{FIRST}invalid_utf8")
            advice = f"; rows that {encoding_advice(shard, first)}" if first else ""
            raise UserError(
                f"{shard.path!r} has rows that cannot be read ({reasons_of(bad)}): correct or drop "
                f"them, with --on-invalid drop{advice}"
            )


def _taken(
    columns: list[list[str]], places: np.ndarray | None, rows: np.ndarray
) -> tuple[list[list[str]], np.ndarray | None]:
    """Return the texts and places of these rows."""
    chosen = rows.tolist()
    texts = [[column[row] for row in chosen] for column in columns]
    return texts, None if places is None else places[rows]


def _row_ids(texts: list[list[str]], places: np.ndarray | None) -> list[int]:
    """Return the id of each row; a row of a single text has its sentence's id from `places`."""
    if places is not None and len(texts) == 1:
        ids: list[int] = places["sentence"].tolist()
        return ids
    return [row_id(*row) for row in zip(*texts, strict=True)]


def row_id(*texts: str) -> int:
    """Return the id of a row: 63 bits of the hash of its texts.

    The probability that any two different rows share an id is 1 in 100,000 for 10 million rows, and
    1 in 20 for a billion. Texts are joined by line breaks, which none contains after white space is
    folded, so ("a b", "c") and ("a", "b c") differ.
    """
    return document_id("\n".join(texts).encode())
