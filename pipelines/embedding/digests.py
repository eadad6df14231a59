"""By what a later job knows the texts of embeddings: DIR/digests, a file beside each part.

A file has, for the rows of its part and in their order, `id`, `digest` (of the text) and `long`
(whether the text has more tokens than the model reads). Its metadata hold a digest of all that the
part was made of, and the part's counts. `cotbert embed --update`, `cotbert index --update` and
`cotbert search` read the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.embedding.options import ID_COLUMN, EmbedOptions
from pipelines.embedding.quantization import write_part
from pipelines.reading.data_folder import DATA_FOLDER, DIGESTS_FOLDER, PASSAGES_COLUMN
from pipelines.reading.pieces import Piece
from pipelines.storage.resumable_output import atomic_file

METADATA_KEY = b"cotbert.digests"
# 128 bits: among a billion texts, two have the same digest with a probability of 1e-21.
DIGEST_BYTES = 16
_DIGEST = pa.binary(DIGEST_BYTES)


@dataclass(frozen=True)
class PartDigests:
    """What the file of a part of N rows holds beside their ids.

    digests: of the texts. long: (N,). block: from `block_digest`. counts: of the part.
    """

    digests: Sequence[bytes]
    long: np.ndarray
    block: str
    counts: Mapping[str, int]


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
    table: pa.Table, long: np.ndarray, duplicates: int, options: EmbedOptions
) -> Counter[str]:
    """Return the counts of a part of N rows. long: (N,), as in its file of digests."""
    # Without --passages, a column of that name is one of the input's, of any type.
    passages = pc.list_flatten(table[PASSAGES_COLUMN]) if options.passages else ()
    return Counter(
        rows=len(table),
        passages=len(passages),
        duplicates=duplicates,
        truncated=int(long.sum()) if options.on_long == "truncate" else 0,
        split=int(long.sum()) if options.on_long == "split-mean" else 0,
    )


def write_described_part(
    output: Path, scratch: Path, name: str, table: pa.Table, described: PartDigests
) -> None:
    """Write a part of N rows and its file of digests into an embeddings folder, each completely."""
    with atomic_file(output / DATA_FOLDER / name, scratch) as partial:
        write_part(table, partial)
    with atomic_file(output / DIGESTS_FOLDER / name, scratch) as partial:
        write_digests(partial, table[ID_COLUMN], described)


def write_digests(path: Path, ids: pa.Array | pa.ChunkedArray, described: PartDigests) -> None:
    """Write the file of a part of N rows."""
    columns = {
        ID_COLUMN: ids,
        "digest": pa.array(described.digests, _DIGEST),
        "long": pa.array(described.long, pa.bool_()),
    }
    facts = {"block": described.block, "counts": dict(described.counts)}
    table = pa.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(facts)})
    pq.write_table(table, path, compression="zstd", use_dictionary=["long"])


def read_digests(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows of a file, and its `block` and `counts`."""
    # Earlier ones have more columns. `pq.read_table` would import pyarrow.dataset, in 0.12 s.
    table = pq.ParquetFile(path).read(columns=[ID_COLUMN, "digest", "long"])
    return table, json.loads(table.schema.metadata[METADATA_KEY])


def as_words(digests: Sequence[bytes] | pa.ChunkedArray) -> np.ndarray:
    """Return N digests as (N, 2) uint64, which are compared and sorted faster than bytes."""
    if not isinstance(digests, pa.ChunkedArray):
        return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    column = digests.combine_chunks()
    words = np.frombuffer(column.buffers()[1], "<u8").reshape(-1, 2)
    return words[column.offset : column.offset + len(column)]


def check_unique(
    ids: Sequence[pa.ChunkedArray],
    what: str,
    advice: str = "an update needs ids that differ, so name another --id-column, or leave --update "
    "out",
) -> None:
    """Raise UserError if an id is there twice. what: whose ids they are, in the plural. advice: why
    they must differ, and what to do."""
    every = pa.chunked_array([chunk for column in ids for chunk in column.chunks])
    if pc.count_distinct(every).as_py() == len(every):
        return
    counts = pc.value_counts(every)
    twice = counts.filter(pc.greater(counts.field("counts"), 1))[0]
    raise UserError(
        f"{what} have the id {twice['values'].as_py()!r} {twice['counts'].as_py()} times: {advice}"
    )


def unchanged_ids(old: Path, new: Path) -> np.ndarray:
    """Return the int64 ids, ascending, that stand for the same text in two embeddings folders.

    UserError if one of them has no digests, or an id twice.
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
    check_unique([table[ID_COLUMN]], f"the embeddings {str(folder)!r}")
    ids = table[ID_COLUMN].to_numpy()
    order = np.argsort(ids, kind="stable")
    return ids[order], as_words(table["digest"])[order]
