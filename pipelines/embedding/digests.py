"""By what a later job knows the texts of embeddings: DIR/digests, a file beside each part.

A file has, for the rows of its part and in their order, `id`, `digest` (of the text), `long`
(whether the text has more tokens than the model reads) and `clipped` (how many values of an int8
vector were clipped). Its metadata hold a digest of all that the part was made of, and the part's
counts. Only `cotbert embed --update` reads the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.embedding.options import ID_COLUMN, OnLong
from pipelines.reading.pieces import Piece

DIGESTS_FOLDER = "digests"
METADATA_KEY = b"cotbert.digests"
# 128 bits: among a billion texts, two have the same digest with a probability of 1e-21.
DIGEST_BYTES = 16
_DIGEST = pa.binary(DIGEST_BYTES)


def text_digests(texts: Sequence[str]) -> list[bytes]:
    """Return the BLAKE2b hash of each text, 16 bytes."""
    return [_hash(text.encode("utf-8", "surrogatepass")) for text in texts]


def block_digest(piece: Piece, digests: Sequence[bytes]) -> str:
    """Return a hash of a block's ids, texts and passed-through columns, in hexadecimal."""
    rest = repr((piece.ids, piece.passthrough)).encode("utf-8", "surrogatepass")
    return _hash(_hash(rest) + b"".join(digests)).hex()


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def part_counts(
    long: np.ndarray, clipped: np.ndarray, duplicates: int, on_long: OnLong
) -> Counter[str]:
    """Return the counts of a part of N rows. long, clipped: (N,), as in the file of the part."""
    return Counter(
        rows=len(long),
        duplicates=duplicates,
        clipped=int(clipped.sum()),
        truncated=int(long.sum()) if on_long == "truncate" else 0,
        split=int(long.sum()) if on_long == "split-mean" else 0,
    )


def write_digests(
    path: Path,
    ids: pa.Array | pa.ChunkedArray,
    digests: Sequence[bytes],
    long: np.ndarray,
    clipped: np.ndarray,
    block: str,
    counts: Mapping[str, int],
) -> None:
    """Write the file of a part of N rows. long, clipped: (N,). block: from `block_digest`."""
    columns = {
        ID_COLUMN: ids,
        "digest": pa.array(digests, _DIGEST),
        "long": pa.array(long, pa.bool_()),
        "clipped": pa.array(clipped, pa.int32()),
    }
    facts = {METADATA_KEY: json.dumps({"block": block, "counts": dict(counts)})}
    table = pa.table(columns).replace_schema_metadata(facts)
    pq.write_table(table, path, compression="zstd", use_dictionary=["long", "clipped"])


def read_digests(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows of a file, and its `block` and `counts`."""
    table = pq.read_table(path)
    return table, json.loads(table.schema.metadata[METADATA_KEY])


def as_words(digests: Sequence[bytes] | pa.ChunkedArray) -> np.ndarray:
    """Return N digests as (N, 2) uint64, which are compared and sorted faster than bytes."""
    values = digests.to_pylist() if isinstance(digests, pa.ChunkedArray) else digests
    return np.frombuffer(b"".join(values), "<u8").reshape(-1, 2)


def unchanged_ids(old: Path, new: Path) -> np.ndarray:
    """Return the int64 ids, ascending, that stand for the same text in two embeddings folders.

    UserError if one of them has no digests.
    """
    (before, first), (after, second) = _by_id(old), _by_id(new)
    places = np.minimum(np.searchsorted(before, after), len(before) - 1)
    same = (before[places] == after) & (first[places] == second).all(axis=1)
    return np.asarray(after[same])


def _by_id(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of a folder, ascending, and their digests."""
    files = sorted((folder / DIGESTS_FOLDER).glob("part-*.parquet"))
    if not files:
        raise UserError(
            f"embeddings {str(folder)!r} have no {DIGESTS_FOLDER}/, by which an update sees what "
            "changed: index all rows, without --update"
        )
    table = pa.concat_tables(read_digests(file)[0] for file in files)
    ids = table[ID_COLUMN].to_numpy()
    order = np.argsort(ids, kind="stable")
    return ids[order], as_words(table["digest"])[order]
