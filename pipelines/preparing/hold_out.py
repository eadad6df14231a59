"""Hold out rows of a corpus as queries and the targets that an encoder must retrieve.

With documents a query is a sentence of a document and its target the others; without documents a
long sentence is split into two halves. The choice depends only on hashes, not on the order of the
input. The keep file has HELD for a held-out row and QUERY for a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError, counted
from pipelines.preparing.buckets import before_in_group, buckets, starts
from pipelines.preparing.document_rows import MANY_DOCUMENTS, kept_places
from pipelines.preparing.duplicates import KEPT
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.placing import WORD
from pipelines.preparing.scratch_files import place_chunks
from pipelines.reading.documents import document_id
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.runtime.progress import say
from pipelines.storage.held_out_file import dev_half
from pipelines.storage.resumable_output import atomic_file

HELD, QUERY = 2, 3
# Minimum number of words of a query, and of a sentence that is split into halves.
QUERY_WORDS, HALVES_WORDS = 5, 12
# At most 1 / LEAST_DOCUMENTS of the documents are held out.
LEAST_DOCUMENTS = 10
# Each split of the queries, dev and test, needs two.
LEAST_HELD_OUT = 4
# A document with more sentences is not held out, since its rows must fit in memory.
MOST_SENTENCES = 10_000
# Maximum number of characters of a target; no encoder reads more.
MOST_CHARACTERS = 100_000


def _schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


HELD_SCHEMA = _schema(
    document=pa.int64(), position=pa.int32(), id=pa.int64(), is_query=pa.bool_(), text=pa.string()
)
_SCHEMA = _schema(document=pa.int64(), query=pa.string(), target=pa.string(), split=pa.string())


def mark_held_out(
    options: PrepareOptions, places: Sequence[Path], keep: Path, scratch: Path, many: int
) -> int:
    """Mark the held-out rows in `keep` and drop all other rows with the queries' sentences, also as
    paired texts.

    many: number of sentences that were dropped as those of many documents. Returns the number of
    dropped rows. Raises UserError if there are too few documents, and labelled texts do not choose.
    """
    count = options.hold_out
    assert count is not None
    chosen = _choose(count, options, places, keep, scratch)
    most = chosen.possible // LEAST_DOCUMENTS
    if count > most:
        if not options.hold_out_fewer or most < LEAST_HELD_OUT:
            found = _found(options, chosen.possible, many)
            if options.labelled and options.hold_out_fewer:
                say(f"note: {found}, too few to hold any out: the labelled texts alone are scored")
                return 0
            raise UserError(_too_many(options, found, most))
        chosen = _choose(most, options, places, keep, scratch)
    flags = np.memmap(keep, np.uint8, "r+")
    flags[np.concatenate(chosen.held)] = HELD
    flags[np.concatenate(chosen.queries)] = QUERY
    sentences = np.unique(np.concatenate(chosen.sentences))
    dropped = _drop_others(places, flags, sentences)
    if options.paired_columns:
        dropped += _drop_paired([path.with_suffix(".parquet") for path in places], flags, sentences)
    flags.flush()
    return dropped


def _choose(
    count: int, options: PrepareOptions, places: Sequence[Path], keep: Path, scratch: Path
) -> _Documents:
    """Return `count` documents to hold out, or sentences if there are no documents."""
    chosen = _Documents(count, options) if options.documents else _Halves(count, options)
    for records in buckets(chosen.records(places, keep), keep.stat().st_size, scratch):
        chosen.add(records)
    return chosen


def _found(options: PrepareOptions, possible: int, many: int) -> str:
    """Return in words how many documents, or sentences, can be held out."""
    what = "document" if options.documents else "sentence"
    only = f"only {counted(possible, what)}" if possible else f"no {what}s"
    have = "has" if possible == 1 else "have"
    found = (
        f"{only} {have} at least two different sentences and at most {MOST_SENTENCES:,}, one of "
        f"them with at least {QUERY_WORDS} words"
        if options.documents
        else f"{only} {have} at least {HALVES_WORDS} words"
    )
    if many:
        found += f" ({many:,} sentences in {MANY_DOCUMENTS} documents or more were dropped)"
    return found


def _too_many(options: PrepareOptions, found: str, most: int) -> str:
    if not options.hold_out_fewer:
        scored = most >= LEAST_HELD_OUT
        use = f"hold out at most a tenth, {most:,}" if scored else "give more text"
        return f"hold_out is {options.hold_out:,} and {found}: {use}"
    other = (
        "make more of them: --documents paragraph (of txt, md and rst files), or --documents none "
        "(sentences); or choose by labels with --labelled FILE"
        if options.documents
        else "choose by labels with --labelled FILE, or by graded pairs with `cotbert train RECIPE "
        "--dev-pairs FILE`"
    )
    return (
        f"{found}, and the score needs {LEAST_DOCUMENTS * LEAST_HELD_OUT}, of which it holds out "
        f"{LEAST_HELD_OUT}: give more text, or {other}"
    )


class _Documents:
    """The documents with the smallest ids that have a query and a target."""

    def __init__(self, count: int, options: PrepareOptions) -> None:
        self._left, self._query = count, options.query
        # The maximum number of queries of a document.
        self._each = 1 if self._query == "first" else max(1, -(-options.queries // count))
        self.possible = 0
        self._giants = np.empty(0, np.int64)
        self.held: list[np.ndarray] = []
        self.queries: list[np.ndarray] = []
        self.sentences: list[np.ndarray] = []

    def records(self, places: Sequence[Path], keep: Path) -> Iterator[np.ndarray]:
        """Yield (document, sentence, row, words) of the rows that stay, in each chunk at most
        MOST_SENTENCES rows of a document."""
        for rows, some in kept_places(places, keep):
            documents, counts = np.unique(some["document"], return_counts=True)
            self._giants = np.union1d(self._giants, documents[counts > MOST_SENTENCES])
            small = ~np.isin(some["document"], self._giants)
            columns = (some["document"], some["sentence"], rows, some["words"])
            yield np.stack([column[small] for column in columns], axis=1)

    def add(self, records: np.ndarray) -> None:
        records = records[np.lexsort((records[:, 2], records[:, 1], records[:, 0]))]
        document, sentence, rows, words = records.T
        group, chosen = self._chosen(document, sentence, words)
        inside = chosen[group]
        asks = np.flatnonzero(inside & (words >= QUERY_WORDS))
        if self._query == "first":
            asks = asks[np.lexsort((rows[asks], document[asks]))]
        else:
            asks = asks[starts(document[asks], sentence[asks])]
        earlier = before_in_group(np.ones_like(asks), starts(document[asks]))
        asks = asks[earlier < self._each]
        self.held.append(rows[inside])
        self.queries.append(rows[asks])
        self.sentences.append(sentence[asks])

    def _chosen(
        self, document: np.ndarray, sentence: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (N,) each row's document index, and (documents,) whether each is held out.

        The rows are sorted by document, then sentence.
        """
        begins = starts(document)
        group = np.cumsum(begins) - 1
        different = np.bincount(group, weights=starts(document, sentence))
        longest = np.maximum.reduceat(words, np.flatnonzero(begins))
        possible = (different >= 2) & (longest >= QUERY_WORDS)
        possible &= np.bincount(group) <= MOST_SENTENCES
        possible &= ~np.isin(document[begins], self._giants)
        chosen = possible & (np.cumsum(possible) <= self._left)
        self.possible += int(possible.sum())
        self._left -= int(chosen.sum())
        return group, chosen


class _Halves(_Documents):
    """The sentences with the smallest ids that are long enough to be split into halves."""

    def records(self, places: Sequence[Path], keep: Path) -> Iterator[np.ndarray]:
        """Yield (sentence, row) of the long rows that stay."""
        for rows, some in kept_places(places, keep):
            long = some["words"] >= HALVES_WORDS
            yield np.stack([some["sentence"][long], rows[long]], axis=1)

    def add(self, records: np.ndarray) -> None:
        sentence, rows = records[np.lexsort((records[:, 1], records[:, 0]))].T
        first = np.flatnonzero(starts(sentence))
        self.possible += len(first)
        first = first[: self._left]
        self._left -= len(first)
        self.held.append(rows[first])
        self.queries.append(rows[first])
        self.sentences.append(sentence[first])


def _drop_others(places: Sequence[Path], flags: np.ndarray, sentences: np.ndarray) -> int:
    """Drop the rows of these sentences that are not held out, and return their number."""
    dropped = 0
    for start, some in place_chunks(places):
        here = flags[start : start + len(some)]
        others = (here == KEPT) & np.isin(some["sentence"], sentences)
        here[others] = 0
        dropped += int(others.sum())
    return dropped


def _drop_paired(files: Sequence[Path], flags: np.ndarray, sentences: np.ndarray) -> int:
    """Drop the rows with one of these sentences as a paired text, and return their number."""
    wanted = set(sentences.tolist())
    start = dropped = 0
    for file in map(pq.ParquetFile, files):
        for batch in file.iter_batches(PIECE_ROWS, columns=file.schema_arrow.names[1:]):
            texts = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            hits = [not wanted.isdisjoint(map(document_id, row)) for row in texts]
            here = flags[start : start + len(hits)]
            others = (here == KEPT) & np.array(hits, bool)
            here[others] = 0
            dropped += int(others.sum())
            start += len(hits)
    return dropped


def write_held_out(files: Sequence[Path], output: Path, scratch: Path) -> tuple[int, int]:
    """Write the queries and targets of the held-out rows in `files`; return the numbers of
    documents and of queries."""
    rows = pa.concat_tables([HELD_SCHEMA.empty_table(), *(pq.read_table(file) for file in files)])
    documents = _pairs(rows.sort_by([("document", "ascending"), ("position", "ascending")]))
    splits = np.where(dev_half([some[0][1] for some in documents]), "dev", "test")  # first queries
    pairs = [(*pair, split) for some, split in zip(documents, splits, strict=True) for pair in some]
    columns = [list(column) for column in zip(*pairs, strict=True)]
    with atomic_file(output, scratch) as partial:
        pq.write_table(pa.table(columns, schema=_SCHEMA), partial, compression="zstd")
    return len(documents), len(pairs)


def _pairs(rows: pa.Table) -> list[list[tuple[int, str, str]]]:
    """Return the (document, query, target) of each document, in the order of hashes."""
    if rows["document"][0].as_py() < 0:
        ordered = rows.sort_by("id")["text"].to_pylist()
        return [[(-1, *halves(text))] for text in ordered]
    documents: dict[int, list[str]] = {}
    queries: dict[int, dict[str, None]] = {}
    for row in rows.select(["document", "is_query", "text"]).to_pylist():
        documents.setdefault(row["document"], []).append(row["text"])
        if row["is_query"]:
            queries.setdefault(row["document"], {})[row["text"]] = None
    return [
        [(one, query, _rest(texts, query)) for query in queries[one]]
        for one, texts in documents.items()
    ]


def _rest(texts: Sequence[str], query: str) -> str:
    """Return the distinct texts of a document except the query, joined by blanks."""
    return " ".join(text for text in dict.fromkeys(texts) if text != query)[:MOST_CHARACTERS]


def halves(text: str) -> tuple[str, str]:
    """Return the first and the second half of a text's words."""
    begins = [word.start() for word in WORD.finditer(text)]
    middle = begins[len(begins) // 2]
    return text[:middle].strip(), text[middle:].strip()[:MOST_CHARACTERS]
