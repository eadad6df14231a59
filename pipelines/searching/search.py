"""cotbert search: find the texts nearest in meaning to a query among the vectors of a folder.

The search of embeddings is exact and needs no index: the Parquet parts are read once, block by
block, for all queries, and with `--keywords` all texts once before. That of an index is FAISS's.
Only the query is encoded, by the model that the folder's manifest names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cotbert_core.choices import KEYWORD_WEIGHT
from cotbert_core.errors import UserError
from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.keyword_search import KeywordScores
from cotbert_core.evaluation.nearest_neighbours import Hits, Nearest
from cotbert_core.evaluation.passages import cut_passages
from cotbert_core.files import absolute_path
from cotbert_core.saving.keyword_weights import keyword_weight
from pipelines.embedding.digests import check_unique, text_digests
from pipelines.embedding.embeddings import Embeddings
from pipelines.reading.data_folder import PASSAGES_COLUMN
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import Progress, say
from pipelines.searching.keywords import keyword_scores_of
from pipelines.searching.opened_index import OpenedIndex, is_index
from pipelines.searching.options import SearchOptions
from pipelines.searching.queries import query_encoder, query_vectors
from pipelines.searching.texts import column_cleaning, input_plan, places_of, texts_of

# The number of rows by which a kept column is known to hold the embedded texts.
CHECKED_ROWS = 100


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
    folder = absolute_path(options.embeddings)
    opened = OpenedIndex.open(folder) if is_index(folder) else Embeddings.open(folder)
    if options.keywords and isinstance(opened, OpenedIndex):
        raise UserError(
            f"keywords are searched in all texts, and {str(opened.path)!r} is an index, which has "
            f"none: search the embeddings {str(opened.made_of)!r}, or leave --keywords out"
        )
    plan = column = None
    if options.inputs:
        plan = input_plan(opened.manifest, options.inputs, options.text_column, options.encoding)
    else:
        column = _text_column(options, opened)
    encoder = query_encoder(opened, options.model, options.query_template)
    queries = query_vectors(opened, encoder, options.queries, options.precision)
    if isinstance(opened, OpenedIndex):
        hits = opened.nearest(queries, options.top)
        ids = opened.ids({int(number) for one in hits for number in one.rows})
    else:
        keywords, weight = None, KEYWORD_WEIGHT
        source = plan if plan is not None else column
        if options.keywords and source is not None:
            if plan is not None and plan.id_column:
                _check_ids(opened)
            keywords = keyword_scores_of(opened, options.queries, source)
            weight = options.keyword_weight or keyword_weight(
                encoder.backbone.name, passages=opened.has_passages
            )
        hits = nearest(opened, queries, options.top, keywords, weight)
        ids = _ids(opened, hits)
    digests = {} if plan is None and column is None else opened.digests(list(ids))
    texts = _texts(opened, plan, column, ids, digests)
    embedded = _embedded(texts, digests)
    if plan is not None:
        texts = _same_texts(texts, embedded, options)
    passages: list[dict[int, str]] = [{} for _ in hits]
    if (embeddings := _with_passages(opened)) is not None:
        if other := len(texts) - len(embedded):
            say(
                f"{other} of the texts found, of the column {column!r}, are not those that were "
                "embedded, so their passages are not shown: name the input with --text"
            )
        passages = _best_passages(opened, embeddings.scale, queries, hits, embedded)
    places = {} if plan is None else places_of(plan, {row: ids[row] for row in texts})
    return [_matches(one, ids, texts, own, places) for one, own in zip(hits, passages, strict=True)]


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
        say(f"{left_out:,} rows have no direction (zeros, null or NaN) and were not compared")
    return running.found()


def _check_ids(embeddings: Embeddings) -> None:
    """Raise UserError if two rows share an id, which leads to a row's text in an input."""
    batches = [batch["id"] for batch in embeddings.id_batches()]
    advice = "--keywords finds the texts in --text by their ids, so embed with --keep and leave "
    check_unique(
        [pa.chunked_array(batches, embeddings.schema.field("id").type)],
        f"the embeddings {str(embeddings.path)!r}",
        f"{advice}--text out, or leave --keywords out",
    )


def _ids(embeddings: Embeddings, hits: Sequence[Hits]) -> dict[int, int | str]:
    """Return the ids of the rows that were found, by row number."""
    found = {int(r): int(i) for one in hits for r, i in zip(one.rows, one.ids, strict=True)}
    return embeddings.values("id", list(found)) if embeddings.text_ids else {**found}


def _texts(
    opened: Embeddings | OpenedIndex,
    plan: ReadPlan | None,
    column: str | None,
    found: Mapping[int, int | str],
    digests: Mapping[int, bytes],
) -> dict[int, str]:
    """Return the known texts of the rows that were found, by row number."""
    if plan is not None:
        if isinstance(opened, OpenedIndex):
            found = {row: row_id for row, row_id in found.items() if not opened.is_shared(row)}
        texts = texts_of(plan, found, partial(_was_embedded, digests))
        if missing := len({row_id for row, row_id in found.items() if row not in texts}):
            say(f"{missing} of the ids found are not in the input that --text names")
        return texts
    values: dict[int, Any] = opened.values(column, list(found)) if column else {}
    clean = column_cleaning(opened.manifest)
    return {row: clean(str(value)) for row, value in values.items() if value is not None}


def _embedded(texts: Mapping[int, str], digests: Mapping[int, bytes]) -> dict[int, str]:
    """Return those of the texts, by row number, that were embedded, with white space folded.

    Where the digests of the embedded texts are gone, all texts are taken for these.
    """
    folded = {row: " ".join(text.split()) for row, text in texts.items()}
    return {row: text for row, text in folded.items() if _was_embedded(digests, row, text)}


def _was_embedded(digests: Mapping[int, bytes], row: int, text: str) -> bool:
    """Return whether the text, with white space folded, is that of the row, as far as is known."""
    return digests.get(row) in (None, *text_digests([text]))


def _same_texts(
    texts: Mapping[int, str], embedded: dict[int, str], options: SearchOptions
) -> dict[int, str]:
    """Return the texts of the input that were embedded, and report the others."""
    if not (other := len(texts) - len(embedded)):
        return embedded
    found = (
        f"{other} of {len(texts)} texts found in the input that --text names are not those that "
        "were embedded"
    )
    if options.keywords:
        raise UserError(
            f"{found}, so its keywords are not theirs: name the input and --text-column of "
            "`cotbert embed`, or leave --keywords out"
        )
    say(f"{found}, and are not shown: name the input and --text-column of `cotbert embed`")
    return embedded


def _with_passages(opened: Embeddings | OpenedIndex) -> Embeddings | None:
    """Return the embeddings that hold the passages of a search by passages, if it is one."""
    if isinstance(opened, Embeddings):
        return opened if opened.has_passages else None
    return opened.embeddings if opened.passages else None


def _best_passages(
    opened: Embeddings | OpenedIndex,
    scale: np.ndarray | None,
    queries: np.ndarray,
    hits: Sequence[Hits],
    texts: Mapping[int, str],
) -> list[dict[int, str]]:
    """Return for each of (Q, D) queries the passages of its hits, by row number.

    scale: of the embeddings. texts: that were embedded, by row number. A text without passages is
    left out, and so is one whose passages had more tokens than the model reads: it has more vectors
    than passages.
    """
    words = int(opened.manifest["passage_words"])
    cut = {row: cut_passages(text, words) for row, text in texts.items()}
    rows = [row for row, passages in cut.items() if passages]
    factor = 1.0 if scale is None else scale
    vectors = {
        row: unit_rows(np.array(stored, np.float32) * factor)
        for row, stored in opened.values(PASSAGES_COLUMN, rows).items()
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


def _text_column(options: SearchOptions, opened: Embeddings | OpenedIndex) -> str | None:
    """Return the column of texts to show: the one named, or the only one that was kept, if it holds
    the embedded texts. UserError if there is none and keywords are searched in it."""
    named, kept = options.text_column, opened.text_columns
    if named in kept:
        return named
    if named == SearchOptions.text_column and len(kept) == 1 and _holds_texts(opened, kept[0]):
        say(f"texts are of the column {kept[0]!r}, the only one kept")
        return kept[0]
    gone = isinstance(opened, OpenedIndex) and opened.embeddings is None
    why = "kept texts are not there" if gone else f"no text column {named!r} was kept"
    missing = f"{why}: name the input of `cotbert embed` with --text"
    if kept:
        missing += f", or one of {', '.join(kept)} with --text-column"
    if options.keywords:
        raise UserError(f"keywords are searched in texts, and {missing}, or leave --keywords out")
    say(f"{missing}, to see the texts")
    return None


def _holds_texts(opened: Embeddings | OpenedIndex, column: str) -> bool:
    """Return whether the first values of a kept column are the texts that were embedded."""
    embeddings = opened if isinstance(opened, Embeddings) else opened.embeddings
    assert embeddings is not None  # it has the column
    rows = range(min(len(embeddings), CHECKED_ROWS))
    clean, digests = column_cleaning(embeddings.manifest), embeddings.digests(rows)
    values = embeddings.values(column, rows)
    texts = {row: clean(value) for row, value in values.items() if value is not None}
    return len(_embedded(texts, digests)) == len(texts)


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
