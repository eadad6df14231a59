"""The texts of the rows that a search has found, and the passages of them that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.nearest_neighbours import Hits
from cotbert_core.evaluation.passages import cut_passages
from pipelines.embedding.digests import text_digests
from pipelines.embedding.embeddings import Embeddings
from pipelines.reading.data_folder import PASSAGES_COLUMN
from pipelines.reading.read_plan import ReadPlan
from pipelines.runtime.progress import say
from pipelines.searching.opened_index import OpenedIndex
from pipelines.searching.options import SearchOptions
from pipelines.searching.texts import column_cleaning, input_plan, texts_of

# The number of rows by which a kept column is known to hold the embedded texts.
CHECKED_ROWS = 100


def text_source(options: SearchOptions, opened: Embeddings | OpenedIndex) -> ReadPlan | str | None:
    """Return where the texts of the rows are: the input that --text names, else a kept column.

    UserError for an input that does not match, or if keywords are searched and there are no texts.
    """
    if options.inputs:
        return input_plan(opened.manifest, options.inputs, options.text_column, options.encoding)
    return _text_column(options, opened)


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
    return len(_embedded(texts, digests)) == len(values)  # no text that was embedded is null


def found_texts(
    options: SearchOptions,
    opened: Embeddings | OpenedIndex,
    source: ReadPlan | str | None,
    ids: Mapping[int, int | str],
) -> tuple[dict[int, str], dict[int, str]]:
    """Return the texts to show of the rows that were found, by row number, and those of them that
    were embedded, with white space folded.

    source: as `text_source` returns it. ids: of the rows. Without the digests of the embedded texts
    every text counts as embedded.
    """
    digests = {} if source is None else opened.digests(list(ids))
    if isinstance(source, ReadPlan):
        texts = _in_input(opened, source, ids, digests)
        embedded = _same_texts(texts, _embedded(texts, digests), options)
        return embedded, embedded
    values: dict[int, Any] = opened.values(source, list(ids)) if source else {}
    clean = column_cleaning(opened.manifest)
    texts = {row: clean(str(value)) for row, value in values.items() if value is not None}
    embedded = _embedded(texts, digests)
    if (other := len(texts) - len(embedded)) and passages_in(opened) is not None:
        say(
            f"{other} of the texts found, of the column {source!r}, are not those that were "
            "embedded, so their passages are not shown: name the input with --text"
        )
    return texts, embedded


def _in_input(
    opened: Embeddings | OpenedIndex,
    plan: ReadPlan,
    ids: Mapping[int, int | str],
    digests: Mapping[int, bytes],
) -> dict[int, str]:
    """Return the texts of the rows that were found, from the input that --text names."""
    if isinstance(opened, OpenedIndex):
        ids = {row: row_id for row, row_id in ids.items() if not opened.is_shared(row)}
    texts = texts_of(plan, ids, partial(_was_embedded, digests))
    if missing := len({row_id for row, row_id in ids.items() if row not in texts}):
        say(f"{missing} of the ids found are not in the input that --text names")
    return texts


def _embedded(texts: Mapping[int, str], digests: Mapping[int, bytes]) -> dict[int, str]:
    """Return those of the texts, by row number, that were embedded, with white space folded."""
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


def passages_in(opened: Embeddings | OpenedIndex) -> Embeddings | None:
    """Return the embeddings that hold the passages of a search by passages, if it is one."""
    if isinstance(opened, Embeddings):
        return opened if opened.has_passages else None
    return opened.embeddings if opened.passages else None


def best_passages(
    opened: Embeddings | OpenedIndex,
    queries: np.ndarray,
    hits: Sequence[Hits],
    texts: Mapping[int, str],
) -> list[dict[int, str]]:
    """Return for each of (Q, D) queries the nearest passage of each of its hits, by row number;
    none if the search is not by passages.

    texts: that were embedded, by row number. A text without passages is left out, and so is one
    whose passages had more tokens than the model reads: it has more vectors than passages.
    """
    embeddings = passages_in(opened)
    if embeddings is None:
        return [{} for _ in hits]
    words = int(opened.manifest["passage_words"])
    cut = {row: cut_passages(text, words) for row, text in texts.items()}
    rows = [row for row, passages in cut.items() if passages]
    factor = 1.0 if embeddings.scale is None else embeddings.scale
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
