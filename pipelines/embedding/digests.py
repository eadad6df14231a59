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
