"""Compare `cotbert search` over Parquet with one product in memory and a full sort."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import DisagreementError, Row, interleave
from cotbert_core.evaluation.nearest_neighbours import Hits, Nearest
from cotbert_core.files import write_json
from pipelines.embedding.embed import read_embeddings
from pipelines.embedding.embeddings import Embeddings
from pipelines.embedding.parts import BLOCK_ROWS
from pipelines.reading.data_folder import make_data_folder
from pipelines.searching.search import nearest

ROWS, DIMENSION, TOP = 200_000, 384, 10
PART_ROWS = 4 * BLOCK_ROWS


def run(_: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 200,000 vectors of 384 float32, with 1 and with 10 queries.

    Half of the rows begin with the files, the others with the vectors in memory. No text is read.
    """
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "embeddings"
        _write(folder, random)
        vectors = read_embeddings(folder)[1]
        rows = []
        for count in (1, 10):
            queries = random.standard_normal((count, DIMENSION), np.float32)
            rows += [
                _from_files(folder, vectors, queries, rounds),
                _in_memory(vectors, queries, rounds),
            ]
    return rows


def _write(folder: Path, random: np.random.Generator) -> None:
    """Write a folder as `cotbert embed` does. The vectors share a direction, as real ones do."""
    data = make_data_folder(folder)
    middle = random.standard_normal(DIMENSION, np.float32)
    for start in range(0, ROWS, PART_ROWS):
        ids = np.arange(start, min(start + PART_ROWS, ROWS))
        values = middle + random.standard_normal((len(ids), DIMENSION), np.float32)
        embedding = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
        pq.write_table(
            pa.table({"id": ids, "embedding": embedding}),
            data / f"part-{start // PART_ROWS:06}.parquet",
            row_group_size=BLOCK_ROWS,
            compression="zstd",
            use_dictionary=["id"],
        )
    facts = {"rows": ROWS, "dimension": DIMENSION, "model": None}
    write_json(folder / "manifest.json", facts)


def _from_files(folder: Path, vectors: np.ndarray, queries: np.ndarray, rounds: int) -> Row:
    opened = Embeddings.open(folder)
    tasks = {
        "ours": lambda _: nearest(opened, queries, TOP),
        "peer": lambda _: _full_sort(read_embeddings(folder)[1], queries),
    }
    check = _check(nearest(opened, queries, TOP), vectors, queries)
    seconds = interleave(tasks, rounds)
    return _row("search", "cotbert search", "read all, product, argsort", seconds, queries, check)


def _in_memory(vectors: np.ndarray, queries: np.ndarray, rounds: int) -> Row:
    def ours(_: int) -> list[Hits]:
        running = Nearest(queries, TOP)
        numbers = np.arange(ROWS)
        for start in range(0, ROWS, BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            running.add(numbers[block], numbers[block], vectors[block])
        return running.found()

    check = _check(ours(0), vectors, queries)
    seconds = interleave({"ours": ours, "peer": lambda _: _full_sort(vectors, queries)}, rounds)
    return _row("rank", "running top 10", "product, argsort", seconds, queries, check)


def _full_sort(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return the row numbers (Q, TOP) of the nearest vectors."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.argsort(-(queries @ unit.T), axis=1)[:, :TOP]


def _check(found: list[Hits], vectors: np.ndarray, queries: np.ndarray) -> str:
    expected = _full_sort(vectors, queries)
    if [hits.rows.tolist() for hits in found] != expected.tolist():
        raise DisagreementError("the running k nearest are not those of a full sort")
    return "same rows"


def _row(
    what: str, ours: str, peer: str, seconds: dict[str, float], queries: np.ndarray, check: str
) -> Row:
    words = f"{len(queries)} quer{'y' if len(queries) == 1 else 'ies'}"
    rate = f"{check}, {ROWS / seconds['ours'] / 1e6:.2f} million rows/s"
    name = f"{what} {ROWS} x {DIMENSION}, {words}"
    return Row(name, ours, peer, seconds["ours"], seconds["peer"], None, rate)
