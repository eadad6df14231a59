"""An embeddings folder as a FAISS index: inner products of unit vectors, which are cosines.

faiss is imported inside functions: it is an extra, and it brings an OpenMP runtime of its own
beside torch's. On Linux the wheels of both carry GNU's (tests/pipelines/searching run both in one
process, in either order); two of LLVM's, as on macOS, may end it. `cotbert index` therefore
never imports torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.evaluation.nearest_neighbours import lengths
from pipelines.runtime.progress import Progress
from pipelines.searching.embeddings import Embeddings
from pipelines.searching.options import IndexOptions

FILE, IDS_FILE = "index.faiss", "ids.parquet"


def write(embeddings: Embeddings, folder: Path, options: IndexOptions) -> int:
    """Write `index.faiss` into the folder; returns how many rows have no direction.

    FAISS's ids are int64. Where those of the embeddings are text, its ids are the rows' numbers and
    `ids.parquet` holds the text of each: that of id n is in row n.
    The index is held in memory until it is whole: a flat one takes 4 bytes a dimension and 16 a
    row. UserError for a factory string that FAISS does not take, or too few rows to train it.
    """
    faiss = require()
    index = _made(faiss, embeddings, options)
    progress = Progress("index", len(embeddings), "row")
    done = left_out = 0
    for block in embeddings.blocks():
        index.add_with_ids(_unit(block.vectors), block.ids)
        left_out += block.left_out
        done += len(block.ids) + block.left_out
        progress.show(done)
    faiss.write_index(index, str(folder / FILE))
    if embeddings.text_ids:
        with pq.ParquetWriter(folder / IDS_FILE, pa.schema([("id", pa.string())])) as file:
            for batch in embeddings.id_batches():
                file.write_batch(batch)
    return left_out


def require() -> Any:
    """The module faiss; UserError where it is not installed."""
    try:
        import faiss
    except ImportError:
        raise UserError(
            "format 'faiss' needs the package faiss-cpu: install the extra, "
            "pip install 'cotbert[faiss]'"
        ) from None
    return faiss


def _made(faiss: Any, embeddings: Embeddings, options: IndexOptions) -> Any:
    """The empty index, trained where its kind is."""
    try:
        inner = faiss.index_factory(
            embeddings.dimension, options.factory, faiss.METRIC_INNER_PRODUCT
        )
        if not inner.is_trained:
            inner.train(_unit(sample(embeddings, options.sample, options.seed)))
        return faiss.IndexIDMap2(inner)
    except RuntimeError as error:  # what FAISS raises for all of its checks
        reason = str(error).strip().splitlines()[-1]
        raise UserError(
            f"FAISS makes no index of {options.factory!r} over {len(embeddings)} rows of "
            f"{embeddings.dimension} dimensions ({reason}): give another --factory, or more rows"
        ) from None


def sample(embeddings: Embeddings, count: int, seed: int) -> np.ndarray:
    """(n, D) vectors of up to `count` rows drawn alike from the whole folder, in its order."""
    total = len(embeddings)
    drawn = np.random.default_rng(seed).choice(total, min(count, total), replace=False)
    chosen = np.zeros(total, bool)
    chosen[drawn] = True
    blocks = (block.vectors[chosen[block.rows]] for block in embeddings.blocks())
    return np.concatenate([*blocks, np.empty((0, embeddings.dimension), np.float32)])


def _unit(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors / lengths(vectors)[:, None])
