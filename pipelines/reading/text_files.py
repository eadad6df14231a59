"""The sentences of files, a folder or a prepared corpus, read in this process.

For views that look at text once and need no cluster; a job that makes a corpus is
`pipelines.prepare`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError
from pipelines.reading import readers, sources
from pipelines.reading.lost_rows import LostRows, count_lost, found_notes
from pipelines.runtime.progress import say

# Characters of all sentences, which are held at once: about 10 million sentences. A compressed file
# may hold a thousand times its size.
MOST_CHARACTERS = 1 << 30


@dataclass(frozen=True)
class PlainTexts:
    """Sentences in the input's order. dropped: rows that are no text, by reason."""

    sentences: list[str]
    read: int
    dropped: dict[str, int]


def read_texts(corpus: str, text_column: str = "text", encoding: str | None = None) -> PlainTexts:
    """All sentences of a file, folder, glob or docstrings:PACKAGE; UserError if there is none, or
    more than can be held.

    Files that lose rows to a wrong encoding or for another reason are said.
    """
    plan = sources.plan([corpus], text_column, encoding=encoding)
    sentences: list[str] = []
    read, characters, dropped, lost = 0, 0, Counter[str](), LostRows(plan)
    for number, shard in enumerate(plan.shards):
        counts: Counter[str] = Counter()
        for piece in readers.read(shard, plan):
            sentences += piece.texts
            characters += sum(map(len, piece.texts))
            if characters > MOST_CHARACTERS:
                raise UserError(
                    f"corpus {corpus!r} holds more than {MOST_CHARACTERS:,} characters, and its "
                    "sentences must be held at once: give a part of it"
                )
            counts["read"] += piece.read
            dropped += piece.dropped
            count_lost(((row.reason, row.row) for row in piece.bad), counts)
        read += counts["read"]
        lost.add(number, counts)
    for warning in (*found_notes(plan), *lost.warnings()):
        say(f"warning: {warning}")
    if not sentences:
        reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.items()) or "none read"
        raise UserError(
            f"corpus {corpus!r} holds no text ({read} rows: {reasons}): give one that does"
        )
    return PlainTexts(sentences, read, dict(dropped))


def sample(sentences: list[str], count: int) -> list[str]:
    """`count` distinct sentences in their order, drawn by a fixed seed; all if there are fewer."""
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) <= count:
        return distinct
    chosen = np.random.default_rng(0).choice(len(distinct), count, replace=False)
    return [distinct[i] for i in np.sort(chosen)]
