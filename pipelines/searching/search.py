"""cotbert search: find the texts nearest in meaning to a query among the vectors of a folder.

The search of embeddings is exact and needs no index: the Parquet parts are read once, block by
block, for all queries, and with `--keywords` all texts once before. That of an index is FAISS's.
Only the query is encoded, by the model that the folder's manifest names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.choices import KEYWORD_WEIGHT
from cotbert_core.errors import UserError, counted
from cotbert_core.evaluation.keyword_search import KeywordScores
from cotbert_core.evaluation.nearest_neighbours import Hits, Nearest
from cotbert_core.files import absolute_path
from cotbert_core.saving.keyword_weights import keyword_weight
from pipelines.embedding.embeddings import Embeddings
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import Progress, say
from pipelines.searching.found_texts import best_passages, found_texts, text_source
from pipelines.searching.keywords import keyword_scores_of
from pipelines.searching.opened_index import OpenedIndex, is_index
from pipelines.searching.options import SearchOptions
from pipelines.searching.queries import query_encoder, query_vectors
from pipelines.searching.texts import places_of


@dataclass(frozen=True)
class Match:
    """A row that was found. rank: from 1. score: the cosine, the mean with that of the best passage
    if rows have passages, with keywords more. text: None if it is not known. passage: the nearest
    part of the text; None if the row has no passages. place: FILE:ROW of the text in an input of
    several files whose ids are row numbers, else None."""

    rank: int
    score: float
    id: int | str
    text: str | None
    passage: str | None = None
    place: str | None = None


def search(options: SearchOptions) -> list[list[Match]]:
    """Return the nearest rows of each query, best first; UserError for a bad folder.

    Equal scores are ordered by id (text ids by row).
    """
    opened = _open(options)
    source = text_source(options, opened)
    encoder = query_encoder(opened, options.model, options.query_template)
    queries = query_vectors(opened, encoder, options.queries, options.precision)
    if isinstance(opened, OpenedIndex):
        hits = opened.nearest(queries, options.top)
        ids = opened.ids({int(number) for one in hits for number in one.rows})
    else:
        keywords, weight = _keywords(options, opened, source), KEYWORD_WEIGHT
        if keywords is not None:
            weight = options.keyword_weight or keyword_weight(
                encoder.backbone.name, passages=opened.has_passages
            )
        hits = nearest(opened, queries, options.top, keywords, weight)
        ids = _ids(opened, hits)
    texts, embedded = found_texts(options, opened, source, ids)
    passages = best_passages(opened, queries, hits, embedded)
    plan = source if isinstance(source, ReadPlan) else None
    places = {} if plan is None else places_of(plan, {row: ids[row] for row in texts})
    return [_matches(one, ids, texts, own, places) for one, own in zip(hits, passages, strict=True)]


def _open(options: SearchOptions) -> Embeddings | OpenedIndex:
    folder = absolute_path(options.embeddings)
    opened = OpenedIndex.open(folder) if is_index(folder) else Embeddings.open(folder)
    if options.keywords and isinstance(opened, OpenedIndex):
        raise UserError(
            f"keywords are searched in all texts, and {str(opened.path)!r} is an index, which has "
            f"none: search the embeddings {str(opened.made_of)!r}, or leave --keywords out"
        )
    return opened


def _keywords(
    options: SearchOptions, embeddings: Embeddings, source: ReadPlan | str | None
) -> KeywordScores | None:
    """Return the keyword scores of the queries and all rows, None if none are wanted."""
    if not options.keywords or source is None:
        return None
    return keyword_scores_of(embeddings, options.queries, source)


def nearest(
    embeddings: Embeddings,
    queries: np.ndarray,
    top: int,
    keywords: KeywordScores | None = None,
    weight: float = KEYWORD_WEIGHT,
) -> list[Hits]:
    """Return the `top` nearest rows of each of (Q, D) queries; fewer if there are fewer rows.

    The best passage of a row counts if the rows have passages. keywords: of the same queries and
    all rows, added to the cosines with this weight.
    """
    running = Nearest(queries, top)
    progress = Progress("search", len(embeddings), "row")
    done = left_out = 0
    for block in embeddings.blocks():
        added = None if keywords is None else weight * keywords.block(texts=block.rows)
        running.add(block.ids, block.rows, block.vectors, added, block.passages)
        left_out += block.left_out
        done += len(block.ids) + block.left_out
        progress.show(done)
    if left_out:
        have, were = ("has", "was") if left_out == 1 else ("have", "were")
        say(
            f"{counted(left_out, 'row')} {have} no direction (zeros, null or NaN) and {were} not "
            "compared"
        )
    return running.found()


def _ids(embeddings: Embeddings, hits: Sequence[Hits]) -> dict[int, int | str]:
    """Return the ids of the rows that were found, by row number."""
    found = {int(r): int(i) for one in hits for r, i in zip(one.rows, one.ids, strict=True)}
    return embeddings.values("id", list(found)) if embeddings.text_ids else {**found}


def _matches(
    hits: Hits,
    ids: Mapping[int, int | str],
    texts: Mapping[int, str],
    passages: Mapping[int, str],
    places: Mapping[int, str],
) -> list[Match]:
    return [
        Match(rank, float(score), ids[row], texts.get(row), passages.get(row), places.get(row))
        for rank, (score, row) in enumerate(
            zip(hits.scores, map(int, hits.rows), strict=True), start=1
        )
    ]
