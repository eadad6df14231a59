"""Write a FAISS index of an embeddings folder: inner products of unit vectors, that is cosines.

A row with passages has a vector for each: half the sum of the unit vectors of both, whose product
with a query is the mean of their two cosines. The largest is the row's score in a search by
passages.

faiss is imported inside functions: it is an extra, and it brings its own OpenMP runtime in addition
to torch's. On Linux the wheels of both contain GNU's runtime and work together (the tests of
`cotbert search` run both in one process); two of LLVM's, as on macOS, may end the process. `cotbert
index` therefore never imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError, counted, missing_packages
from cotbert_core.evaluation.nearest_neighbours import lengths
from pipelines.embedding.embeddings import Block, Embeddings
from pipelines.runtime.progress import Progress
from pipelines.searching.options import IndexOptions

FILE, IDS_FILE = "index.faiss", "ids.parquet"
MORE_ROWS = "give another --factory, or more rows"


def write(embeddings: Embeddings, folder: Path, options: IndexOptions) -> int:
    """Write `index.faiss` into the folder; return how many rows have no direction.

    FAISS's ids are int64. If the ids of the embeddings are text, FAISS's ids are the rows' numbers,
    and row n of `ids.parquet` holds the text of id n. The index is held in memory until it is
    complete: a flat index takes 4 bytes per dimension and 16 per row. Raises UserError for a
    factory string that FAISS does not accept, or for too few rows.
    """
    faiss = require()
    index = _made(faiss, embeddings, options)
    left_out = 0
    for block in shown_blocks(embeddings):
        vectors, of_row = vectors_of(block)
        with faiss_errors(embeddings, options):
            index.add_with_ids(vectors, block.ids[of_row])
        left_out += block.left_out
    faiss.write_index(index, str(folder / FILE))
    if embeddings.text_ids:
        with pq.ParquetWriter(folder / IDS_FILE, pa.schema([("id", pa.string())])) as file:
            for batch in embeddings.id_batches():
                file.write_batch(batch)
    return left_out


def shown_blocks(embeddings: Embeddings) -> Iterator[Block]:
    """Yield the blocks of embeddings, and show how many rows are in the index after each."""
    progress, done = Progress("index", len(embeddings), "row"), 0
    for block in embeddings.blocks():
        yield block
        done += len(block.ids) + block.left_out
        progress.show(done)


def require() -> Any:
    """Return the module faiss; UserError if it is not installed."""
    try:
        import faiss
    except ImportError:
        raise missing_packages("a FAISS index", ["faiss"], "faiss") from None
    return faiss


def _made(faiss: Any, embeddings: Embeddings, options: IndexOptions) -> Any:
    """Return the empty index, trained if its kind needs that."""
    larger = options.sample < len(embeddings)
    advice = "give a larger --sample, or another --factory" if larger else MORE_ROWS
    with faiss_errors(embeddings, options, advice):
        inner = faiss.index_factory(
            embeddings.dimension, options.factory, faiss.METRIC_INNER_PRODUCT
        )
        if not inner.is_trained:
            inner.train(sample(embeddings, options.sample, options.seed))
        elif (options.sample, options.seed) != (IndexOptions.sample, IndexOptions.seed):
            raise UserError(
                f"an index {options.factory!r} is not trained, so --sample and --seed have no "
                "effect: leave them out, or give another --factory"
            )
        return faiss.IndexIDMap2(inner)


@contextmanager
def faiss_errors(
    embeddings: Embeddings, options: IndexOptions, advice: str = MORE_ROWS
) -> Iterator[None]:
    """Raise UserError, with this advice, where FAISS refuses to make an index of embeddings."""
    try:
        yield
    except RuntimeError as error:  # FAISS raises it for all of its checks
        # The text after the place in FAISS's code and, if it names one, the condition that failed.
        reason = str(error).strip().splitlines()[-1].rpartition(" Error: ")[2]
        reason = reason.rpartition("' failed: ")[2]
        raise UserError(
            f"FAISS cannot make an index {options.factory!r} of {counted(len(embeddings), 'row')} "
            f"of {embeddings.dimension} dimensions ({reason}): {advice}"
        ) from None


def vectors_of(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors (M, D) of a block of N rows as FAISS takes them, and (M,) the number of
    each one's row in the block, ascending."""
    whole, passages = unit(block.vectors), block.passages
    rows = np.arange(len(whole))
    if passages is None:
        return whole, rows
    each = np.maximum(passages.counts, 1)
    vectors, parted = np.repeat(whole, each, axis=0), np.repeat(passages.counts > 0, each)
    vectors[parted] = (vectors[parted] + unit(passages.vectors)) / 2
    return vectors, np.repeat(rows, each)


def sample(embeddings: Embeddings, count: int, seed: int) -> np.ndarray:
    """Return (n, D) vectors of up to `count` rows, sampled uniformly, in the folder's order; one of
    its vectors for each row."""
    total, random = len(embeddings), np.random.default_rng(seed)
    chosen = np.zeros(total, bool)
    chosen[random.choice(total, min(count, total), replace=False)] = True
    found = [np.empty((0, embeddings.dimension), np.float32)]
    for block in embeddings.blocks():
        vectors, of_row = vectors_of(block)
        first = np.searchsorted(of_row, np.arange(len(block.rows)))
        one = first + random.integers(np.bincount(of_row, minlength=len(first)))
        found.append(vectors[one[chosen[block.rows]]])
    return np.concatenate(found)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return (N, D) vectors of length 1, as FAISS takes them."""
    return np.ascontiguousarray(vectors / lengths(vectors)[:, None])
