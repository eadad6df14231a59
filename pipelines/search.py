"""cotbert search: find the texts nearest in meaning to a query among the vectors of a folder.

The search is exact and needs no index: the Parquet parts are read once, block by block, for all
queries. Only the query is encoded, by the model that the folder's manifest names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cotbert_core.evaluation.nearest_neighbours import Hits, Nearest
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import Progress, say
from pipelines.searching.embeddings import Embeddings
from pipelines.searching.options import SearchOptions
from pipelines.searching.queries import query_vectors
from pipelines.searching.texts import input_plan, texts_of


@dataclass(frozen=True)
class Match:
    """A row that was found. rank: from 1. score: the cosine. text: None if it is not known."""

    rank: int
    score: float
    id: int | str
    text: str | None


def search(options: SearchOptions) -> list[list[Match]]:
    """Return the nearest rows of each query, best first; UserError for a bad folder.

    Equal scores are ordered by id (text ids by row).
    """
    embeddings = Embeddings.open(options.embeddings)
    plan = _plan(options, embeddings)
    queries = query_vectors(embeddings, options.queries, options.model, options.precision)
    hits = nearest(embeddings, queries, options.top)
    ids = _ids(embeddings, hits)
    texts = _texts(options, embeddings, plan, ids)
    return [_matches(one, ids, texts) for one in hits]


def nearest(embeddings: Embeddings, queries: np.ndarray, top: int) -> list[Hits]:
    """Return the `top` nearest rows of each of (Q, D) queries; fewer if there are fewer rows."""
    running = Nearest(queries, top)
    progress = Progress("search", len(embeddings), "row")
    done = left_out = 0
    for block in embeddings.blocks():
        running.add(block.ids, block.rows, block.vectors)
        left_out += block.left_out
        done += len(block.ids) + block.left_out
        progress.show(done)
    if left_out:
        say(f"{left_out:,} rows have no direction (zeros, null or NaN) and were not compared")
    return running.found()


def _plan(options: SearchOptions, embeddings: Embeddings) -> ReadPlan | None:
    """Return the plan of the input that holds the texts; None if no input is named."""
    if not options.inputs:
        return None
    return input_plan(embeddings, options.inputs, options.text_column, options.encoding)


def _ids(embeddings: Embeddings, hits: Sequence[Hits]) -> dict[int, int | str]:
    """Return the ids of the rows that were found, by row number."""
    found = {int(r): int(i) for one in hits for r, i in zip(one.rows, one.ids, strict=True)}
    return embeddings.values("id", list(found)) if embeddings.text_ids else {**found}


def _texts(
    options: SearchOptions,
    embeddings: Embeddings,
    plan: ReadPlan | None,
    found: Mapping[int, int | str],
) -> dict[int, str]:
    """Return the known texts of the rows that were found, by row number."""
    if plan is not None:
        by_id = texts_of(plan, found.values())
        _report_missing(found.values(), by_id)
        return {row: by_id[row_id] for row, row_id in found.items() if row_id in by_id}
    if options.text_column in embeddings.passthrough_columns:
        values: dict[int, Any] = embeddings.values(options.text_column, list(found))
        return {row: str(value) for row, value in values.items() if value is not None}
    say(
        f"the embeddings have no column {options.text_column!r}: name the input of `cotbert embed` "
        "with --text to see the texts"
    )
    return {}


def _report_missing(ids: Iterable[int | str], texts: Mapping[int | str, str]) -> None:
    missing = len(set(ids) - set(texts))
    if missing:
        say(f"{missing} of the ids found are not in the input that --text names")


def _matches(hits: Hits, ids: Mapping[int, int | str], texts: Mapping[int, str]) -> list[Match]:
    return [
        Match(rank, float(score), ids[row], texts.get(row))
        for rank, (score, row) in enumerate(
            zip(hits.scores, map(int, hits.rows), strict=True), start=1
        )
    ]
