"""The passages of found texts that are nearest to a query, for `cotbert search` to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.nearest_neighbours import Hits
from cotbert_core.evaluation.passages import cut_passages
from pipelines.reading.data_folder import PASSAGES_COLUMN
from pipelines.searching.embeddings import Embeddings


def best_passages(
    embeddings: Embeddings, queries: np.ndarray, hits: Sequence[Hits], texts: Mapping[int, str]
) -> list[dict[int, str]]:
    """Return for each of (Q, D) queries the passages of its hits, by row number.

    texts: of the rows, by row number. A text without passages is left out, and so is one whose
    passages had more tokens than the model reads: it has more vectors than passages.
    """
    words = int(embeddings.manifest["passage_words"])
    cut = {row: cut_passages(text, words) for row, text in texts.items()}
    rows = [row for row, passages in cut.items() if passages]
    scale = 1.0 if embeddings.scale is None else embeddings.scale
    vectors = {
        row: unit_rows(np.array(stored, np.float32) * scale)
        for row, stored in embeddings.values(PASSAGES_COLUMN, rows).items()
        if len(stored) == len(cut[row])
    }
    return [
        {
            row: cut[row][int(np.argmax(vectors[row] @ query))]
            for row in map(int, one.rows)
            if row in vectors
        }
        for query, one in zip(queries, hits, strict=True)
    ]
