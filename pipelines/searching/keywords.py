"""Keyword search in the texts of an embeddings folder, for `cotbert search --keywords`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cotbert_core.evaluation.keyword_search import KeywordCounts, KeywordScores
from pipelines.embedding.digests import check_unique
from pipelines.embedding.embeddings import Embeddings
from pipelines.embedding.parts import read_batches
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import Progress, say
from pipelines.searching.texts import column_cleaning, read_texts


def keyword_scores_of(
    embeddings: Embeddings, queries: Sequence[str], source: ReadPlan | str
) -> KeywordScores:
    """Return the BM25 scores of queries and all rows, in the order of the folder's rows.

    source: the input that holds the texts, by ids that differ, or the folder's own column. All
    texts are read once.
    """
    counts, progress = KeywordCounts(queries), Progress("keywords", len(embeddings), "row")
    if not isinstance(source, str):
        return _from_input(embeddings, source, counts, progress)
    done, clean = 0, column_cleaning(embeddings.manifest)
    for part in embeddings.parts:
        for batch in read_batches(part, [source]):
            counts.add([clean(text or "") for text in batch.column(0).to_pylist()])
            done += len(batch)
            progress.show(done)
    return counts.scores()


def _from_input(
    embeddings: Embeddings, plan: ReadPlan, counts: KeywordCounts, progress: Progress
) -> KeywordScores:
    """Count the texts of the input in its own order, then put them into the folder's; those of
    other rows, which `embed` skipped or did not read, do not count. UserError if two rows share an
    id, which leads to a row's text."""
    kind, done = pa.string() if embeddings.text_ids else pa.int64(), 0
    wanted = pa.chunked_array([batch["id"].cast(kind) for batch in embeddings.id_batches()], kind)
    _check_ids(wanted, f"the embeddings {str(embeddings.path)!r}", plan)
    ids = [pa.array([], kind)]
    for piece in read_texts(plan, plan.shards):
        counts.add(piece.texts)
        ids.append(pa.array(piece.ids, kind))
        done += len(piece.ids)
        progress.show(min(done, len(embeddings)))
    found = pa.chunked_array(ids, kind)
    # A row without a vector, such as one that is too long, may have the id of another.
    _check_ids(found.filter(pc.is_in(found, wanted)), "the rows that --text names", plan)
    places = pc.index_in(wanted, value_set=found)
    if places.null_count:
        say(
            f"{places.null_count:,} of {len(embeddings):,} ids are not in the input that --text "
            "names: these rows have a cosine and no keywords"
        )
    scores = counts.scores(collection=np.asarray(places.drop_null()))
    return scores.reordered(np.asarray(places.fill_null(-1)))


def _check_ids(ids: pa.ChunkedArray, what: str, plan: ReadPlan) -> None:
    """Raise UserError if ids from a column are not unique. what: whose they are, in the plural."""
    if plan.id_column:
        advice = "--keywords finds the texts in --text by their ids, so embed with --keep and leave"
        check_unique([ids], what, f"{advice} --text out, or leave --keywords out")
