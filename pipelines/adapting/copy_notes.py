"""A note on test documents if training sees another version of many of them.

A copy with some words changed is another document to `prepare`. Trained on it, a candidate finds
the held-out one better than any new document.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.adapting.options import AdaptOptions
from pipelines.storage.corpus import Corpus, ragged_column
from pipelines.storage.held_out_file import has_held_out, read_held_out

# Runs of this many tokens are compared. If a tenth of the words are changed, 0.9 ** 5 = 59 % of
# them stay; of two reviews of one film, hardly any agree.
GRAM = 5
# The share of a document's runs that one document of the corpus holds, if it is a version of it.
SAME = 0.25
# The share of the test documents, with a version that is trained on, from which there is a note. In
# the quickstart 14 % have a version, but 4 % of all sentences are trained on, and these documents
# do not add to the gain.
COPIES = 0.05
# A shorter document may agree with another by chance.
LEAST_GRAMS = 8
# Runs of this many test documents are those of a template, and are not compared.
MANY = 3
_PRIME = np.uint64(0x100000001B3)


def copy_notes(corpus: Corpus, encoder: str, options: AdaptOptions) -> list[str]:
    """Return a note if versions of many test documents are trained on. encoder: a NAME."""
    if not corpus.has_documents or not has_held_out(corpus.path):
        return []
    drawn = min(1.0, options.max_steps * options.batch_size / len(corpus))
    if drawn <= COPIES:
        return []
    copied, documents = copied_documents(corpus, encoder)
    if copied * drawn <= COPIES * documents:
        return []
    return [
        f"{copied:,} of {documents:,} test documents have much of their wording in common with a "
        "document of the corpus, as copies and versions do: the gain may look larger than it is "
        "for documents without a version that is trained on, so give one version of each"
    ]


def copied_documents(corpus: Corpus, encoder: str) -> tuple[int, int]:
    """Return the number of test documents with a version in the corpus, and of all of them."""
    held_out = read_held_out(corpus.path, "test", least=0)
    assert held_out.documents is not None
    _, first = np.unique(held_out.documents[held_out.rows], return_index=True)
    texts = [f"{held_out.queries[n]} {held_out.targets[held_out.rows[n]]}" for n in first]
    asked = np.unique(_pairs(load_tokenizer(encoder)(texts, None), np.arange(len(texts))), axis=0)
    grams = np.bincount(asked[:, 1], minlength=len(texts))
    runs, times = np.unique(asked[:, 0], return_counts=True)
    few = np.flatnonzero(times < MANY)
    runs, owners = runs[few], Ragged.from_lengths(asked[:, 1], times).take(few)
    shared = [np.empty((0, 3), np.int64)]
    for pairs in _corpus_pairs(corpus):
        pairs = pairs[np.isin(pairs[:, 0], runs)]
        found = owners.take(np.searchsorted(runs, pairs[:, 0]))
        rows = [found.flat[:, None], np.repeat(pairs[:, ::-1], found.lengths, axis=0)]
        shared.append(np.unique(np.hstack(rows), axis=0))  # test, trained on, run
    distinct = np.unique(np.concatenate(shared), axis=0)
    both, counts = np.unique(distinct[:, :2], axis=0, return_counts=True)
    enough = SAME * np.maximum(grams, LEAST_GRAMS)
    return len(np.unique(both[counts >= enough[both[:, 0]], 0])), len(texts)


def _corpus_pairs(corpus: Corpus) -> Iterator[np.ndarray]:
    """Yield the (run, document) of the sentences of the corpus, some thousand at a time."""
    for path in corpus.parts():
        for batch in pq.ParquetFile(path).iter_batches(columns=["document", "input_ids"]):
            table = pa.Table.from_batches([batch])
            yield _pairs(ragged_column(table["input_ids"]), table["document"].to_numpy())


def _pairs(tokens: Ragged, documents: np.ndarray) -> np.ndarray:
    """Return (M, 2): the hash of each run of GRAM tokens within a sentence, and its document."""
    count = max(len(tokens.flat) - GRAM + 1, 0)
    hashes = np.zeros(count, np.uint64)
    for offset in range(GRAM):
        hashes = hashes * _PRIME + tokens.flat[offset : offset + count].astype(np.uint64)
    sentence = np.repeat(np.arange(len(tokens)), tokens.lengths)
    inside = sentence[:count] == sentence[len(sentence) - count :]
    return np.stack([hashes[inside].view(np.int64), documents[sentence[:count][inside]]], axis=1)
