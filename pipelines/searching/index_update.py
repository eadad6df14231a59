"""Extend a FAISS index by the rows that embeddings have gained since it was made."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np

from cotbert_core.errors import UserError, counted
from cotbert_core.files import read_json
from pipelines.embedding.embeddings import Embeddings
from pipelines.searching.faiss_index import FILE, faiss_errors, require, shown_blocks, vectors_of
from pipelines.searching.opened_index import OpenedIndex, is_index
from pipelines.searching.options import IndexOptions
from pipelines.storage.corpus import MANIFEST_FILE

# What two manifests must share for their vectors to be comparable.
_VECTORS = (
    *("dimension", "normalize", "model_digest", "model_commit", "readout", "template", "denoise"),
    *("passage_words", "head", "max_tokens", "on_long", "truncated_from", "id_column", "clean"),
    "computed_in",
)


def open_for_update(path: Path, embeddings: Embeddings) -> tuple[OpenedIndex, IndexOptions]:
    """Return an index and its options; UserError unless the embeddings can be added to it."""
    if not is_index(path):
        raise UserError(f"{str(path)!r} is not an index: give a folder of `cotbert index`")
    old = OpenedIndex.open(path)
    if old.text_ids or embeddings.text_ids:
        raise UserError(
            f"index {str(path)!r} numbers the rows, since their ids are text, and an update would "
            "number them anew: index all rows, without --update"
        )
    before, now = old.manifest, embeddings.manifest
    other = [key for key in _VECTORS if before.get(key) != now.get(key)]
    if other:
        raise UserError(
            f"index {str(path)!r} was made of embeddings of another {other[0]} "
            f"({before.get(other[0])!r}, here {now.get(other[0])!r}): index all rows, without "
            "--update"
        )
    if embeddings.has_passages and not old.passages:
        raise UserError(
            f"index {str(path)!r} was made by a version that left passages out: index all rows, "
            "without --update"
        )
    if Embeddings.open(old.made_of).manifest != before:
        raise UserError(
            f"the embeddings {str(old.made_of)!r} were made again after index {str(path)!r}: index "
            "all rows, without --update"
        )
    facts = read_json(path / MANIFEST_FILE)["index"]
    return old, IndexOptions(**{field.name: facts[field.name] for field in fields(IndexOptions)})


def extend(
    old: OpenedIndex,
    embeddings: Embeddings,
    unchanged: np.ndarray,
    folder: Path,
    options: IndexOptions,
) -> tuple[int, dict[str, int]]:
    """Write `index.faiss` into the folder: the old index without the rows that are not `unchanged`
    (ids, ascending), and with the other rows of the embeddings. options: of the old index.

    Returns how many rows have no direction, and how many were added and dropped.
    """
    faiss = require()
    index = old.index
    present = faiss.vector_to_array(index.id_map)
    gone = np.setdiff1d(present, unchanged)
    # The ids beside any other kind of index are not renumbered rightly when it drops a row.
    if len(gone) and not isinstance(faiss.downcast_index(index.index), faiss.IndexFlat):
        raise UserError(
            f"index {str(old.path)!r} holds {counted(len(gone), 'row')} changed or gone since, and "
            "only an index of the kind Flat can drop rows: index all rows, without --update"
        )
    if len(gone):
        index.remove_ids(gone)
    added = left_out = 0
    for block in shown_blocks(embeddings):
        vectors, of_row = vectors_of(block)
        ids = block.ids[of_row]
        new = ~np.isin(ids, unchanged)
        if new.any():
            with faiss_errors(embeddings, options, "index all rows, without --update"):
                index.add_with_ids(vectors[new], ids[new])
        added += len(np.unique(ids[new]))
        left_out += block.left_out
    faiss.write_index(index, str(folder / FILE))
    return left_out, {"added": added, "dropped": len(gone)}
