"""The global batches of a corpus that is too large for memory, streamed by Ray Data.

Each worker has its own pipeline over the run's windows (cotbert_core.training.shuffle_windows). A
task per window reads the id columns of the window's parts, shuffles the rows and yields them in
blocks. The worker forms global batches of B rows and takes its share of each. So every worker reads
every part: the ids of a Wikipedia sentence, 20 tokens, are 38 bytes (zstd), so 100 million are
3.8 GB per epoch and worker, and 8 workers at 2,000 sentences/s read 0.6 MB/s. In return no worker
waits for a shared queue, and the rows of a step depend neither on the number of workers nor on
their speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.shuffle_windows import Window, windows
from pipelines.storage.corpus import Corpus, batch_of, ids_columns
from pipelines.training.documents import document_batch, document_window, rest_length

# Rows of a block: 7 MB of ids, yielded before the rest of the window is built.
BLOCK_ROWS = 65_536
# Number of prefetched global batches.
READY = 4
# Windows that a worker's pipeline keeps in the object store, and its minimum share of it in bytes.
AHEAD, LEAST_BYTES = 2, 128 << 20


@dataclass(frozen=True)
class Stream:
    """A corpus of which each worker holds one or two windows of rows.

    part_rows: number of training rows of each part. together: approximate rows of a window.
    """

    corpus: Corpus
    part_rows: tuple[int, ...]
    together: int

    def __len__(self) -> int:
        return sum(self.part_rows)

    def batches(
        self, settings: TrainSettings, done: int, total: int
    ) -> Iterator[tuple[int, Batch]]:
        """Yield (step, global batch) for the steps after `done`."""
        plan = tuple(windows(self.part_rows, settings, self.together, done, total))
        if not plan:
            return
        tables = self._dataset(plan, settings).iter_batches(
            batch_size=settings.batch_size, batch_format="pyarrow", prefetch_batches=READY
        )
        for step, table in zip(range(done + 1, total + 1), tables, strict=True):
            if settings.method.from_documents:
                yield step, document_batch(table)
            else:
                yield step, batch_of(table, self.corpus.columns).cut(settings.max_length)

    def _dataset(self, plan: Sequence[Window], settings: TrainSettings) -> Any:
        read = partial(read_window, self.corpus, settings, len(self.part_rows))
        source = WindowDatasource(read, plan)
        # A window is read while the one before is trained on, without a core, since the training
        # workers hold all of them, and on this worker's node.
        dataset = ray.data.read_datasource(
            source,
            override_num_blocks=len(plan),
            num_cpus=0,
            concurrency=1,
            label_selector={"ray.io/node-id": ray.get_runtime_context().get_node_id()},
        )
        options = dataset.context.execution_options
        options.preserve_order = True
        # Without a limit Ray Data would fill half of the object store for each worker.
        window = self.together * _row_bytes(self.corpus, settings)
        options.resource_limits = ray.data.ExecutionResources.for_limits(
            object_store_memory=max(AHEAD * window, LEAST_BYTES)
        )
        return dataset


class WindowDatasource(Datasource):  # type: ignore[misc]
    """A data source with a read task for each window."""

    def __init__(
        self, read: Callable[[Window], Iterator[pa.Table]], plan: Sequence[Window]
    ) -> None:
        super().__init__()
        self._read, self._plan = read, plan

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        return [
            ReadTask(
                partial(self._read, window),
                BlockMetadata(window.stop - window.start, None, None, None),
            )
            for window in self._plan
        ]


def _row_bytes(corpus: Corpus, settings: TrainSettings) -> int:
    """Return the size in bytes of a row whose texts have the maximum length."""
    texts = [corpus.manifest["max_length"]] * (1 + len(corpus.columns))
    if settings.method.from_documents:
        texts = [settings.max_length, rest_length(settings) or settings.max_length]
    return sum(4 * tokens + 4 for tokens in texts)


def read_window(
    corpus: Corpus, settings: TrainSettings, parts: int, window: Window
) -> Iterator[pa.Table]:
    """Yield the token ids of a window's rows in their order, in blocks.

    parts: the number of the corpus's parts. Raises UserError if the corpus has changed.
    """
    corpus.require_unchanged(parts)
    if settings.method.from_documents:
        yield from document_window(corpus, settings, window, BLOCK_ROWS)
        return
    rows = corpus.table(ids_columns(corpus.columns), window.parts).combine_chunks()
    order = window.order(len(rows))
    for start in range(0, len(order), BLOCK_ROWS):
        yield rows.take(pa.array(order[start : start + BLOCK_ROWS]))
