"""A corpus packed into rows of neighbouring sentences, which is trained on as any other corpus.

The folder is a corpus without texts: parts with id and input_ids, and a manifest that says how it
was packed. Beside the manifest lies dev-rows.parquet with the held-out rows. Packing holds the
token ids of the whole corpus in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError, counted
from cotbert_core.files import atomic_folder, write_json
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.packing import pack
from pipelines.reading.data_folder import make_data_folder
from pipelines.runtime.progress import say
from pipelines.storage.corpus import MANIFEST_FILE, PLACES, Corpus, list_array, ragged_column

DEV_FILE = "dev-rows.parquet"
PART_ROWS = 16_384
# Rows that leave training: one in a hundred, but enough to score a small corpus by, and no more
# than a dev check of seconds takes.
DEV_SHARE, FEWEST_DEV, MOST_DEV = 100, 20, 200


@dataclass(frozen=True)
class Packing:
    """Everything that packed rows depend on.

    capacity: tokens of a row without special tokens. tokenizer: its hash. retokenize: the tokenizer
    of texts, given the longest length; None to take the corpus's own token ids.
    """

    corpus: Corpus
    capacity: int
    encoder: str
    tokenizer: str
    retokenize: Callable[[list[str], int], Ragged] | None = None

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
    sentences, documents = _read(packing)
    packed = pack(sentences, packing.capacity, documents)
    held_out = np.zeros(len(packed), bool)
    wanted = max(len(packed) // DEV_SHARE, min(FEWEST_DEV, len(packed) // 5))
    held_out[np.random.default_rng(0).permutation(len(packed))[: min(MOST_DEV, wanted)]] = True
    rows, dev = (packed.take(np.flatnonzero(chosen)) for chosen in (~held_out, held_out))
    if not len(rows) or not len(dev):
        raise UserError(
            f"corpus {str(packing.corpus.path)!r} is packed into "
            f"{counted(len(packed), 'row')} of tokens, too few to train on and to hold some "
            "out: give more text"
        )
    data = make_data_folder(folder)
    for number, start in enumerate(range(0, len(rows), PART_ROWS)):
        part = rows.take(np.arange(start, min(start + PART_ROWS, len(rows))))
        _write_rows(part, data / f"part-{number:06}.parquet", start)
    _write_rows(dev, folder / DEV_FILE, 0)
    counts = {
        "sentences": len(sentences),
        "cut_sentences": _cut(packing, sentences),
        "by_documents": packing.corpus.has_documents,
        "held_out": len(dev),
    }
    _write_manifest(packing, folder, len(rows), counts)


def _cut(packing: Packing, sentences: Ragged) -> int:
    """Return the number of sentences without their end, which preparing may have dropped."""
    source = packing.corpus.manifest
    if packing.retokenize is None and source["max_length"] <= packing.capacity:
        return int(source.get("truncated", 0))
    return int((sentences.lengths > packing.capacity).sum())


def _write_manifest(packing: Packing, folder: Path, rows: int, counts: dict[str, Any]) -> None:
    source = packing.corpus.manifest
    write_json(
        folder / MANIFEST_FILE,
        {
            "format": 1,
            "columns": [],
            "rows": rows,
            "encoder": packing.encoder,
            "tokenizer_hash": packing.tokenizer,
            "max_length": packing.capacity,
            "packed": {"corpus_digest": packing.corpus.digest, **counts},
            **({"source": source["source"]} if "source" in source else {}),
        },
    )


def _write_rows(rows: Ragged, path: Path, first: int) -> None:
    columns = {"id": pa.array(np.arange(first, first + len(rows))), "input_ids": list_array(rows)}
    pq.write_table(pa.table(columns), path, compression="zstd")


def _read(packing: Packing) -> tuple[Ragged, np.ndarray | None]:
    """Return all sentences in the order in which they are packed, with their documents if the
    corpus has documents."""
    corpus, retokenize = packing.corpus, packing.retokenize
    column = "input_ids" if retokenize is None else "text"
    parts = (corpus.table([column], [n])[column] for n in range(len(corpus.part_rows())))
    # One token more than a row has room for, to know which sentences are cut.
    longest = packing.capacity + 1
    sentences = concatenate(
        ragged_column(part) if retokenize is None else retokenize(part.to_pylist(), longest)
        for part in parts
    )
    if not corpus.has_documents:
        return sentences, None
    documents, positions = (np.asarray(one) for one in corpus.table([*PLACES]).columns)
    order = np.lexsort((positions, documents))
    return sentences.take(order), documents[order]
