"""Search a FAISS index that `cotbert index` wrote, and find the texts of what it finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.evaluation.nearest_neighbours import DIGITS, Hits
from cotbert_core.files import read_json
from pipelines.embedding.embeddings import Embeddings
from pipelines.reading.manifests import check_manifest
from pipelines.runtime.progress import say
from pipelines.searching.faiss_index import FILE, IDS_FILE, require, unit
from pipelines.storage.corpus import MANIFEST_FILE

# FAISS searches a single cluster by default, which finds half of what it should: of the 10 nearest
# of 39,703 docstrings (all-MiniLM-L6-v2) 0.51 to 0.53 with 32 to 256 clusters. An eighth of the
# clusters, at least 16, finds 0.94 with 64 clusters, 0.93 with 256 and 0.98 with 1,024.
LEAST_CLUSTERS, SHARE_OF_CLUSTERS = 16, 8
# In an HNSW graph FAISS follows the 16 best rows by default, which finds 0.964 of the 10 nearest of
# 11,415 Wikipedia lines (HNSW32, the same encoder), and 0.997 with 256, in 0.24 ms a query.
FOLLOWED = 256
# FAISS refines (RFlat) only the rows that it returns, which finds none that they lack: 0.66 of the
# 10 nearest of 40,000 docstrings with IVF64,PQ48,RFlat; of 20 times as many 0.94, in 0.11 instead
# of 0.09 ms a query, and of 100 times as many 0.94 too.
REFINED = 20
# Where an approximate index finds no more rows, FAISS fills up with this score and the number -1,
# which may be the id of a row too.
FILLER = np.finfo(np.float32).min


@dataclass(frozen=True)
class OpenedIndex:
    """An opened index.

    manifest: of the embeddings it was made of, which lie in `made_of`. rows: their number.
    passages: whether a row has a vector for each of its passages. index: FAISS's, whose numbers are
    the ids of the rows, or the rows' numbers if ids are text. _row_of: as `_row_of` returns it, of
    the ids that were looked for.
    """

    path: Path
    manifest: dict[str, Any]
    made_of: Path
    rows: int
    text_ids: bool
    passages: bool
    index: Any
    _row_of: dict[int, int | None] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> OpenedIndex:
        """Open the folder of an index; UserError for one that is damaged."""
        faiss = require()
        facts = check_manifest(path / MANIFEST_FILE, read_json(path / MANIFEST_FILE), "index")
        try:
            index = faiss.read_index(str(path / FILE))
        except RuntimeError:
            raise UserError(
                f"index {str(path / FILE)!r} cannot be read by FAISS: copy it again, or index the "
                "embeddings again"
            ) from None
        _search_more(faiss, index)
        made_of, manifest = Path(facts["made_of"]), facts["embeddings"]
        return cls(
            path, manifest, made_of, facts["rows"], "ids" in facts, "passages" in facts, index
        )

    @property
    def dimension(self) -> int:
        """D, the size of a vector."""
        return int(self.index.d)

    def nearest(self, queries: np.ndarray, top: int) -> list[Hits]:
        """Return the `top` nearest rows of each of (Q, D) queries; a Hits has numbers for rows.

        As in a search without an index, scores are rounded, and equal ones are ordered by number.
        """
        vectors, every = self.index.ntotal, unit(queries)
        wanted = (top + 1) * -(-vectors // self.rows)  # some rows have several vectors, or only one
        while True:
            scores, numbers = self.index.search(every, min(wanted, vectors))
            found = [_best_of_each(*one) for one in zip(scores, numbers, strict=True)]
            # Rows that were not returned may have the rounded score of the last one.
            last = _rounded(scores[:, -1])
            better = [(hits.scores > score).sum() for hits, score in zip(found, last, strict=True)]
            finished = (scores <= FILLER).any(axis=1) | (np.array(better) >= top)
            if finished.all() or wanted >= vectors:
                return [one.best(top) for one in found]
            wanted *= 2

    def ids(self, numbers: Iterable[int]) -> dict[int, int | str]:
        """Return the ids of the index's numbers."""
        if not self.text_ids:
            return {number: number for number in numbers}
        ids = pq.ParquetFile(self.path / IDS_FILE).read()["id"]
        return {number: ids[number].as_py() for number in numbers}

    def values(self, column: str, numbers: Sequence[int]) -> dict[int, Any]:
        """Return the values of a passed-through column of the embeddings, by number."""
        embeddings = self.embeddings or Embeddings.open(self.made_of)
        rows = self._rows(embeddings, numbers)
        return {rows[row]: value for row, value in embeddings.values(column, list(rows)).items()}

    def digests(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the hashes of the embedded texts that are known, by number."""
        if self.embeddings is None:
            return {}
        rows = self._rows(self.embeddings, numbers)
        return {rows[row]: value for row, value in self.embeddings.digests(list(rows)).items()}

    def is_shared(self, number: int) -> bool:
        """Whether `values` or `digests` found that several rows have this number; without the
        embeddings, whether several vectors have it and none is that of a passage."""
        if self.embeddings is None and not self.passages:
            return number in self._repeated
        return self._row_of.get(number, 0) is None

    @cached_property
    def _repeated(self) -> set[int]:
        """The numbers that several vectors have."""
        ids = require().vector_to_array(self.index.id_map)
        numbers, counts = np.unique(ids, return_counts=True)
        return set(numbers[counts > 1].tolist())

    def _rows(self, embeddings: Embeddings, numbers: Sequence[int]) -> dict[int, int]:
        """Return the index's numbers by the rows' numbers in the embeddings."""
        if self.text_ids:
            return {number: number for number in numbers}
        if unknown := set(numbers) - self._row_of.keys():
            self._row_of.update(_row_of(embeddings, unknown))
        rows = {self._row_of[number]: number for number in numbers}
        return {row: number for row, number in rows.items() if row is not None}

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The embeddings that it was made of; None if these are gone or changed."""
        try:
            embeddings = Embeddings.open(self.made_of)
        except UserError as error:
            say(f"of this index only the vectors are there, not the embeddings: {error}")
            return None
        if embeddings.manifest != self.manifest:
            say(
                f"embeddings {str(self.made_of)!r} were made again after the index: its texts are "
                "not shown; index them again"
            )
            return None
        return embeddings

    @property
    def text_columns(self) -> list[str]:
        """The columns of text in the embeddings; none if these are gone or changed."""
        return [] if self.embeddings is None else self.embeddings.text_columns


def _search_more(faiss: Any, index: Any) -> None:
    """Let an approximate index search more than by default; any other number that it stores
    stays."""
    clusters = faiss.try_extract_index_ivf(index)
    if clusters is not None and clusters.nprobe == 1:
        clusters.nprobe = max(LEAST_CLUSTERS, clusters.nlist // SHARE_OF_CLUSTERS)
    inner = faiss.downcast_index(index.index)  # of the map to the ids
    if isinstance(inner, faiss.IndexRefine):
        inner.k_factor = REFINED if inner.k_factor == 1 else inner.k_factor
        inner = faiss.downcast_index(inner.base_index)
    if isinstance(inner, faiss.IndexPreTransform):
        inner = faiss.downcast_index(inner.index)
    if isinstance(inner, faiss.IndexHNSW) and inner.hnsw.efSearch == faiss.HNSW().efSearch:
        inner.hnsw.efSearch = FOLLOWED


def _best_of_each(scores: np.ndarray, numbers: np.ndarray) -> Hits:
    """Return the hits of a query with the first of each number; scores descend."""
    real = scores > FILLER
    found, first = np.unique(numbers[real], return_index=True)
    return Hits(_rounded(scores[real][first]), found, found)


def _rounded(scores: np.ndarray) -> np.ndarray:
    return np.round(scores.astype(np.float64), DIGITS)


def _row_of(embeddings: Embeddings, ids: Collection[int]) -> dict[int, int | None]:
    """Return the row number of each id, None for an id of several rows, which FAISS does not tell
    apart. All ids of the folder are read, and no vector."""
    wanted, first, rows = np.fromiter(ids, np.int64), 0, defaultdict[int, list[int]](list)
    for batch in embeddings.id_batches():
        column = batch["id"].to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(np.isin(column, wanted)):
            rows[int(column[row])].append(first + int(row))
        first += len(batch)
    if several := sum(len(found) > 1 for found in rows.values()):
        say(f"{several} of the ids found belong to several rows: their texts are not shown")
    return {one: rows[one][0] if len(rows[one]) == 1 else None for one in ids}


def is_index(path: Path) -> bool:
    """Return whether a folder is one that `cotbert index` wrote."""
    return (path / FILE).is_file()
