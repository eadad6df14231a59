"""A prepared corpus on disk: part-*.parquet and manifest.json.

Parts hold id (int64), text and input_ids (list<int32>: the sentence alone, no special tokens, no
template), so one corpus serves every template. The manifest says where each row that is not here
went, and is the same for the same input and options.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.ragged import Ragged, concatenate

MANIFEST_FILE = "manifest.json"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
    ]
)


@dataclass(frozen=True)
class Corpus:
    """An opened corpus folder."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """UserError when the folder holds no finished corpus."""
        path = Path(path).expanduser().absolute()
        if not (path / MANIFEST_FILE).is_file():
            raise UserError(
                f"corpus {str(path)!r} has no {MANIFEST_FILE}: make one with `cotbert prepare`"
            )
        return cls(path, read_json(path / MANIFEST_FILE))

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    @property
    def digest(self) -> str:
        """Short hash of the manifest."""
        return hashlib.sha256((self.path / MANIFEST_FILE).read_bytes()).hexdigest()[:16]

    def check_tokenizer(self, encoder: str, tokenizer_hash: str, max_length: int) -> None:
        """UserError unless the ids are this encoder's, cut no shorter than `max_length`."""
        if self.manifest["tokenizer_hash"] != tokenizer_hash:
            raise UserError(
                f"corpus {str(self.path)!r} was tokenized for {self.manifest['encoder']!r}, whose "
                f"tokenizer differs from that of {encoder!r}: prepare it again with "
                f"--encoder {encoder}"
            )
        if self.manifest["max_length"] < max_length:
            raise UserError(
                f"corpus {str(self.path)!r} was cut to {self.manifest['max_length']} tokens and "
                f"max_length is {max_length}: prepare it again with --max-length {max_length}"
            )

    def sentences(self) -> Ragged:
        """The token ids of all rows, in the order of the parts."""
        parts = []
        for chunk in self._table(["input_ids"])["input_ids"].chunks:
            lengths = np.diff(np.asarray(chunk.offsets))
            parts.append(Ragged.from_lengths(np.asarray(chunk.flatten()), lengths))
        return concatenate(parts)

    def texts(self) -> dict[int, str]:
        """The sentence of each id."""
        table = self._table(["id", "text"])
        return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))

    def _table(self, columns: list[str]) -> pa.Table:
        parts = sorted(self.path.glob("part-*.parquet"))
        return pa.concat_tables([pq.read_table(part, columns=columns) for part in parts])


def corpus_table(ids: np.ndarray, texts: list[str], sentences: Ragged) -> pa.Table:
    """Rows of a part."""
    offsets = pa.array(sentences.offsets.astype(np.int32))
    input_ids = pa.ListArray.from_arrays(offsets, pa.array(sentences.flat, pa.int32()))
    columns = [pa.array(ids, pa.int64()), pa.array(texts, pa.string()), input_ids]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
