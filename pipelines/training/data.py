"""The training batches of a worker, from a corpus in memory or a streamed one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch.profiler import record_function

from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import rank, world_size
from cotbert_core.training.documents import DocumentSentences
from cotbert_core.training.sampling import batches, own_share, step_draws
from cotbert_core.training.shuffle_windows import window_rows
from pipelines.storage.corpus import Corpus
from pipelines.training.documents import COLUMNS, by_document


class Data(Protocol):
    """A corpus as batches in the order of a run."""

    def __len__(self) -> int: ...

    def batches(
        self, settings: TrainSettings, done: int, total: int
    ) -> Iterator[tuple[int, Batch]]:
        """Yield (step, global batch) for the steps after `done`, up to `total`."""


@dataclass(frozen=True)
class InMemory:
    """All rows, held by each worker."""

    rows: Batch

    def __len__(self) -> int:
        return len(self.rows)

    def batches(
        self, settings: TrainSettings, done: int, total: int
    ) -> Iterator[tuple[int, Batch]]:
        for step, rows in batches(len(self), settings, done, total):
            yield step, self.rows.take(rows)


@dataclass(frozen=True)
class DocumentsInMemory:
    """All sentences with another sentence in their document, held by each worker."""

    sentences: DocumentSentences

    def __len__(self) -> int:
        return len(self.sentences)

    def batches(
        self, settings: TrainSettings, done: int, total: int
    ) -> Iterator[tuple[int, Batch]]:
        arrange = self.sentences.documents_first
        for step, rows in batches(len(self), settings, done, total, arrange):
            yield step, self.sentences.batch(rows, settings, step_draws(settings, step))


def open_data(corpus: Corpus, part_rows: tuple[int, ...] | None, settings: TrainSettings) -> Data:
    """Return the data of a run: the sentences and those paired texts that its method uses.

    part_rows: training rows of each part if the corpus is streamed.
    """
    corpus = corpus.select_columns(settings.method.uses)
    together = window_rows(settings, len(corpus))
    if together is None or part_rows is None:
        if settings.method.from_documents:
            return DocumentsInMemory(by_document([corpus.table(COLUMNS)]))
        return InMemory(corpus.batch().cut(settings.max_length))
    from pipelines.training.streaming import Stream

    return Stream(corpus, part_rows, together)


def own_batches(
    data: Data, settings: TrainSettings, done: int, total: int
) -> Iterator[tuple[int, Batch, float]]:
    """Yield (step, this worker's b rows, seconds spent waiting for them) after step `done`."""
    source = data.batches(settings, done, total)
    while True:
        started = time.perf_counter()
        with record_function("data wait"):
            found = next(source, None)
            if found is None:
                return
            step, batch = found
            share = own_share(batch, rank(), world_size())
        yield step, share, time.perf_counter() - started
