"""The documents of a corpus, for positives from a sentence's document."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from cotbert_core.errors import UserError
from cotbert_core.method_settings.bases import PositiveSettings
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.documents import DocumentSentences, count_anchors
from cotbert_core.training.sampling import total_steps
from cotbert_core.training.shuffle_windows import Window, window_rows
from pipelines.storage.corpus import PLACES, Corpus, list_array, ragged_column

DOCUMENT = PLACES[0]
COLUMNS = ["input_ids", *PLACES]
_BLOCK = ["input_ids", "augmented_ids", DOCUMENT]


def check_documents(settings: TrainSettings, corpus: Corpus) -> None:
    """Raise UserError if the run needs documents and the corpus has none."""
    if not settings.method.from_documents:
        return
    assert isinstance(settings.method, PositiveSettings)
    if not corpus.has_documents:
        raise UserError(
            f"method.positive is {settings.method.positive!r} and the corpus {str(corpus.path)!r} "
            "has no documents: prepare it again with --documents row, file, paragraph or "
            "column:NAME, or choose another method.positive"
        )


def training_rows(settings: TrainSettings, corpus: Corpus) -> int:
    """Return the number of sentences that the run trains on.

    With positives from documents these are the sentences with another one in their document, in the
    same part if the corpus is streamed.
    """
    if not settings.method.from_documents:
        return len(corpus)
    streamed = window_rows(settings, len(corpus)) is not None
    return sum(_anchors(corpus.path, corpus.digest, by_part=streamed))


def training_steps(settings: TrainSettings, corpus: Corpus) -> int:
    """Return the number of steps of a run on this corpus."""
    return total_steps(training_rows(settings, corpus), settings)


def streamed_rows(settings: TrainSettings, corpus: Corpus) -> tuple[int, ...]:
    """Return the number of sentences of each part that a streamed run trains on."""
    if not settings.method.from_documents:
        return corpus.part_rows()
    corpus.part_rows()  # raises if the rows do not match the manifest
    return _anchors(corpus.path, corpus.digest, by_part=True)


def document_notes(settings: TrainSettings, corpus: Corpus) -> list[str]:
    """Return notes about sentences that the run skips."""
    left_out = len(corpus) - training_rows(settings, corpus)
    if not left_out:
        return []
    assert isinstance(settings.method, PositiveSettings)
    streamed = window_rows(settings, len(corpus)) is not None
    where = "document in the same part of the corpus" if streamed else "document"
    return [
        f"method.positive is {settings.method.positive}: {left_out:,} of {len(corpus):,} sentences "
        f"have no other sentence of their {where} and are not trained on"
    ]


@cache
def _anchors(path: Path, digest: str, *, by_part: bool) -> tuple[int, ...]:
    """Return the number of rows with another row in their document, by part or in total."""
    corpus = Corpus.open(path)
    parts: list[list[int] | None] = [[n] for n in range(len(corpus.part_rows()))]
    tables = (corpus.table([DOCUMENT], chosen) for chosen in (parts if by_part else [None]))
    return tuple(count_anchors(table[DOCUMENT].to_numpy()) for table in tables)


def by_document(tables: list[pa.Table]) -> DocumentSentences:
    """Return the sentences of tables with COLUMNS by document, separately for each table."""
    table = pa.concat_tables(tables)
    documents, positions = (table[name].to_numpy() for name in COLUMNS[1:])
    parts = np.repeat(np.arange(len(tables)), [len(part) for part in tables])
    return DocumentSentences.of(ragged_column(table["input_ids"]), documents, positions, parts)


def document_window(
    corpus: Corpus, settings: TrainSettings, window: Window, block_rows: int
) -> Iterator[pa.Table]:
    """Yield the sentences of a window in their order, with positives from the same part."""
    rows = by_document([corpus.table(COLUMNS, [part]) for part in window.parts])
    order, draws = window.order(len(rows), rows.documents_first), window.draws(len(rows))
    for start in range(0, len(order), block_rows):
        block = slice(start, start + block_rows)
        batch = rows.batch(order[block], settings, draws[block])
        assert batch.augmented is not None
        lists = [list_array(texts) for texts in (batch.sentences, batch.augmented)]
        yield pa.table([*lists, pa.array(batch.documents)], names=_BLOCK)


def document_batch(table: pa.Table) -> Batch:
    """Return the batch of a table that `document_window` made."""
    sentences, positives = (ragged_column(table[name]) for name in _BLOCK[:2])
    return Batch(sentences, positives, documents=table[DOCUMENT].to_numpy())


def rest_length(settings: TrainSettings) -> int | None:
    """Return the maximum length of a positive that is the rest of a document, None for others."""
    method = settings.method
    if isinstance(method, PositiveSettings) and method.positive == "rest":
        return method.rest_length
    return None
