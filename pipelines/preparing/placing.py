"""The PLACE of each sentence of a shard: its document, its position there, its number of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cotbert_core.evaluation.keyword_search import NO_BLANKS
from pipelines.cleaning.cleaner import Cleaned
from pipelines.preparing.scratch_files import PLACE, shard_file
from pipelines.reading.documents import FILE, document_id, documents_of
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan, Shard
from pipelines.storage.resumable_output import atomic_file

MOST_WORDS = 255
# A letter of a script without blanks between words counts as a word; else blanks separate words.
WORD = re.compile(rf"[{NO_BLANKS}]|[^\s{NO_BLANKS}]+")


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(text.split()) if text.isascii() else sum(1 for _ in WORD.finditer(text))


class Placing:
    """Determine the places of a shard's sentences.

    words: whether to count words. If documents may span shards, the number of sentences of each is
    counted, which takes 100 bytes per document.
    """

    def __init__(self, shard: Shard, plan: ReadPlan, words: bool) -> None:
        self._shard, self._plan, self._words = shard, plan, words
        self._sizes: dict[int, int] = {}
        self._copy = 0

    def __call__(self, piece: Piece, cleaned: Cleaned) -> np.ndarray:
        """Return the (N,) PLACE of a piece's N cleaned sentences; pieces must come in order."""
        places = np.zeros(len(cleaned.sentences), PLACE)
        places["document"] = -1
        texts = cleaned.texts
        places["sentence"] = np.fromiter(map(document_id, texts), np.int64, len(texts))
        if self._words:
            words = (min(count_words(text), MOST_WORDS) for text in texts)
            places["words"] = np.fromiter(words, np.uint8, len(texts))
        if self._plan.documents:
            documents, copies = documents_of(piece, self._shard, self._plan)
            places["document"] = np.asarray(documents, np.int64)[cleaned.rows]
            places["position"] = self._positions(documents, copies, cleaned)
        return places

    def _positions(
        self, documents: Sequence[int], copies: Sequence[int], cleaned: Cleaned
    ) -> np.ndarray:
        """Return the number of sentences of this shard's document before each sentence."""
        counts = np.ones(len(documents), np.int64)
        if cleaned.origin is not None:
            counts = np.bincount(cleaned.origin, minlength=len(documents))
        before = self._before(documents, copies, counts.tolist())
        first = np.cumsum(counts) - counts
        positions: np.ndarray = (before - first)[cleaned.rows] + cleaned.sentences
        return positions

    def _before(
        self, documents: Sequence[int], copies: Sequence[int], counts: Sequence[int]
    ) -> np.ndarray:
        """Return the number of sentences before each row in its document."""
        before = np.empty(len(documents), np.int64)
        for row, (document, copy) in enumerate(zip(documents, copies, strict=True)):
            if copy != self._copy:
                self._sizes.clear()
                self._copy = copy
            start = self._sizes.get(document, 0)
            before[row] = start
            self._sizes[document] = start + counts[row]
        return before

    def write_sizes(self, scratch: Path, number: int) -> None:
        """Write the number of sentences of each document in the shard, if documents span shards."""
        span_shards = self._plan.documents == FILE or self._plan.document_column is not None
        if not (span_shards and self._sizes):
            return
        sizes = np.array(sorted(self._sizes.items()), np.int64)
        with atomic_file(shard_file(scratch, number, "sizes"), scratch) as partial:
            partial.write_bytes(np.ascontiguousarray(sizes.T).tobytes())
