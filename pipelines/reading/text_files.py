"""Read the sentences of files, a folder or a prepared corpus into this process's memory.

It is for jobs that read text once and need no cluster; pipelines.preparing.prepare writes a corpus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError, counted
from pipelines.reading import readers, sources
from pipelines.reading.bad_rows import reasons_of
from pipelines.reading.columns import check_reading
from pipelines.reading.lost_rows import LostRows, count_lost, found_notes
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import say_warnings

# Maximum characters of all sentences, which must fit in memory: about 10 million sentences. A
# compressed file may expand to a thousand times its size.
MOST_CHARACTERS = 1 << 30


@dataclass(frozen=True)
class PlainTexts:
    """Sentences in input order. read: number of rows. dropped: unusable rows by reason."""

    sentences: list[str]
    read: int
    dropped: dict[str, int]


def read_texts(
    corpus: str,
    text_column: str = "text",
    encoding: str | None = None,
    delimiter: str | None = None,
    also: Sequence[str] = (),
) -> PlainTexts:
    """Return all sentences of a file, folder, glob or docstrings:PACKAGE.

    also: further input that is read with the same options. Raises UserError if there are none, or
    more than MOST_CHARACTERS. Shows a warning for each file that loses rows.
    """
    plan = sources.plan([corpus], text_column, encoding=encoding, delimiter=delimiter)
    check_reading(plan, also)
    sentences: list[str] = []
    read, characters, dropped = 0, 0, Counter[str]()
    for piece in read_pieces(plan):
        sentences += piece.texts
        characters += sum(map(len, piece.texts))
        if characters > MOST_CHARACTERS:
            raise UserError(
                f"corpus {corpus!r} has more than {MOST_CHARACTERS:,} characters, which must fit "
                "in memory: give a part of it"
            )
        read += piece.read
        dropped += piece.dropped
    if not sentences:
        raise UserError(
            f"corpus {corpus!r} has no text ({counted(read, 'row')}: {reasons_of(dropped)}): give "
            "a corpus with text"
        )
    return PlainTexts(sentences, read, dict(dropped))


def read_pieces(plan: ReadPlan, cleaned: bool = False) -> Iterator[Piece]:
    """Yield the rows of all shards in pieces; then show a warning for each file that loses rows.

    cleaned: whether the plan removes markup.
    """
    lost = LostRows()
    for shard in plan.shards:
        counts: Counter[str] = Counter()
        for piece in readers.read(shard, plan):
            counts["read"] += piece.read
            count_lost(piece.faults, counts)
            yield piece
        lost.add(shard, counts)
    say_warnings([*found_notes(plan, cleaned), *lost.warnings()])


def sample(sentences: list[str], count: int) -> list[str]:
    """Return at most `count` distinct sentences in their order, sampled with a fixed seed."""
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) <= count:
        return distinct
    chosen = np.random.default_rng(0).choice(len(distinct), count, replace=False)
    return [distinct[i] for i in np.sort(chosen)]
