"""A corpus packed into rows of neighbouring sentences, which is trained on as any other corpus.

The folder is a corpus without texts: parts with id and input_ids, and a manifest that says how it
was packed. Beside the manifest lies dev-rows.parquet with the held-out rows.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.files import atomic_folder, write_json
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.packing import pack
from pipelines.reading.data_folder import make_data_folder
from pipelines.runtime.progress import say
from pipelines.storage.corpus import (
    MANIFEST_FILE,
    PLACES,
    Corpus,
    list_array,
    ragged_column,
)

DEV_FILE = "dev-rows.parquet"
PART_ROWS = 16_384
# Rows that leave training: one in a hundred, but enough to score a small corpus by, and no more
# than a dev check of seconds takes.
DEV_SHARE, FEWEST_DEV, MOST_DEV = 100, 20, 200
# Sentences of a corpus with documents that are sorted in memory at once; the corpus is read again
# for each such bucket of documents.
SORTED_ROWS = 20_000_000


@dataclass(frozen=True)
class Packing:
    """Everything that packed rows depend on.

    capacity: tokens of a row without special tokens. tokenizer: its hash. retokenize: the tokenizer
    of texts; None to take the corpus's own token ids.
    """

    corpus: Corpus
    capacity: int
    encoder: str
    tokenizer: str
    retokenize: Callable[[list[str]], Ragged] | None = None

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "corpus_digest": self.corpus.digest,
            "tokenizer_hash": self.tokenizer,
            "max_length": self.capacity,
        }


def packed_corpus(packing: Packing, folder: Path) -> tuple[Corpus, Ragged]:
    """Return the packed corpus in `folder`, written now unless it is there, and its dev rows.

    Raises UserError for a folder with rows of another corpus, length or tokenizer.
    """
    if (folder / MANIFEST_FILE).is_file():
        corpus = Corpus.open(folder)
        held = {**corpus.manifest, **corpus.manifest.get("packed", {})}
        if any(held.get(key) != value for key, value in packing.facts.items()):
            raise UserError(
                f"{str(folder)!r} holds rows of another corpus, tokenizer or "
                "method.packed_length: give a new output folder"
            )
    else:
        say(f"packing {packing.corpus.path} into {folder}")
        with atomic_folder(folder) as partial:
            _write(packing, partial)
        corpus = Corpus.open(folder)
    return corpus, ragged_column(pq.read_table(folder / DEV_FILE)["input_ids"])


def _write(packing: Packing, folder: Path) -> None:
    dev, counts = _DevRows(), {"rows": 0, "sentences": 0, "cut": 0}
    waiting: list[Ragged] = []
    data, parts = make_data_folder(folder), 0

    def write(rows: Ragged, least: int) -> list[Ragged]:
        """Write whole parts, and return what is left if it has fewer than `least` rows."""
        nonlocal parts
        start = 0
        while len(rows) - start >= least:
            part = rows.take(np.arange(start, min(start + PART_ROWS, len(rows))))
            _write_rows(part, data / f"part-{parts:06}.parquet", counts["rows"])
            counts["rows"] += len(part)
            parts, start = parts + 1, start + len(part)
        return [rows.take(np.arange(start, len(rows)))]

    for sentences, documents in _read(packing):
        counts["sentences"] += len(sentences)
        counts["cut"] += int((sentences.lengths > packing.capacity).sum())
        waiting.append(dev.take(pack(sentences, packing.capacity, documents)))
        if sum(map(len, waiting)) >= PART_ROWS:
            waiting = write(concatenate(waiting), PART_ROWS)
    waiting.append(dev.too_many(counts["rows"] + sum(map(len, waiting))))
    write(concatenate(waiting), 1)
    held_out = dev.rows()
    _write_rows(held_out, folder / DEV_FILE, 0)
    if not counts["rows"] or not len(held_out):
        raise UserError(
            f"corpus {str(packing.corpus.path)!r} is packed into {counts['rows'] + len(held_out)} "
            "rows of tokens, too few to train on and to hold some out: give more text"
        )
    _write_manifest(packing, folder, counts, len(held_out))


def _write_manifest(packing: Packing, folder: Path, counts: dict[str, int], held_out: int) -> None:
    source = packing.corpus.manifest
    write_json(
        folder / MANIFEST_FILE,
        {
            "format": 1,
            "columns": [],
            "rows": counts["rows"],
            "encoder": packing.encoder,
            "tokenizer_hash": packing.tokenizer,
            "max_length": packing.capacity,
            "packed": {
                "corpus_digest": packing.corpus.digest,
                "sentences": counts["sentences"],
                "cut_sentences": counts["cut"],
                "by_documents": packing.corpus.has_documents,
                "held_out": held_out,
            },
            **({"source": source["source"]} if "source" in source else {}),
        },
    )


class _DevRows:
    """The rows with the smallest digests so far, at most MOST_DEV."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, np.ndarray]] = []
        self._seen = 0

    def take(self, rows: Ragged) -> Ragged:
        """Keep some of these rows; return the others and the ones that these replace."""
        others, given_up = [], []
        for number in range(len(rows)):
            row = rows[number]
            digest = int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "big")
            self._seen += 1
            if len(self._heap) == MOST_DEV and -digest <= self._heap[0][0]:
                others.append(number)
                continue
            heapq.heappush(self._heap, (-digest, self._seen, row))
            if len(self._heap) > MOST_DEV:
                given_up.append(heapq.heappop(self._heap)[2])
        return concatenate([rows.take(others), Ragged.from_lists(given_up)])

    def too_many(self, others: int) -> Ragged:
        """Return the kept rows beyond the share of all rows that is held out."""
        rows = others + len(self._heap)
        wanted = min(MOST_DEV, max(rows // DEV_SHARE, min(FEWEST_DEV, rows // 5)))
        back = []
        while len(self._heap) > wanted:
            back.append(heapq.heappop(self._heap)[2])
        return Ragged.from_lists(back)

    def rows(self) -> Ragged:
        return Ragged.from_lists([row for _, _, row in sorted(self._heap, key=lambda k: -k[0])])


def _write_rows(rows: Ragged, path: Path, first: int) -> None:
    columns = {"id": pa.array(np.arange(first, first + len(rows))), "input_ids": list_array(rows)}
    pq.write_table(pa.table(columns), path, compression="zstd")


def _read(packing: Packing) -> Iterator[tuple[Ragged, np.ndarray | None]]:
    """Yield sentences that may share rows, with their documents if the corpus has documents."""
    corpus = packing.corpus
    ids = "input_ids" if packing.retokenize is None else "text"
    if not corpus.has_documents:
        for part in range(len(corpus.part_rows())):
            yield _sentences(packing, corpus.table([ids], [part])[ids]), None
        return
    buckets = -(-len(corpus) // SORTED_ROWS)
    for bucket in range(buckets):
        tables = []
        for part in range(len(corpus.part_rows())):
            table = corpus.table([ids, *PLACES], [part])
            own = np.asarray(table["document"]) % buckets == bucket
            tables.append(table.filter(pa.array(own)))
        table = pa.concat_tables(tables)
        documents = np.asarray(table["document"])
        order = np.lexsort((np.asarray(table["position"]), documents))
        yield _sentences(packing, table[ids].take(pa.array(order))), documents[order]


def _sentences(packing: Packing, column: pa.ChunkedArray) -> Ragged:
    if packing.retokenize is None:
        return ragged_column(column)
    return packing.retokenize(column.to_pylist())
