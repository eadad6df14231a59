"""A prepared corpus on disk: part-*.parquet and manifest.json.

Parts hold id (int64), text and input_ids (list<int32>: the sentence alone, no special tokens, no
template), so one corpus serves every template. Rows may carry companions
(cotbert_core.training.batches), each with two columns more: augmented_text and augmented_ids,
negative_text and negative_ids. The manifest names them under `columns`, says where each row that is
not here went, and is the same for the same input and options.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.batches import COLUMNS, Batch
from pipelines.reading.manifests import check_corpus, check_tokens
from pipelines.reading.parquet_batches import read_table

MANIFEST_FILE = "manifest.json"
# What the manifests of vectors and of an index of them hold, and no corpus's does.
OF_VECTORS = {"dimension", "index"}


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
        manifest = read_json(path / MANIFEST_FILE)
        if not isinstance(manifest, dict) or "rows" not in manifest or OF_VECTORS & set(manifest):
            raise UserError(
                f"corpus {str(path)!r} is {_kind_of(manifest)}, not a prepared corpus: give the "
                "text itself, or a folder made by `cotbert prepare`"
            )
        return cls(path, check_corpus(path / MANIFEST_FILE, manifest))

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    @property
    def digest(self) -> str:
        """Short hash of the manifest."""
        return hashlib.sha256((self.path / MANIFEST_FILE).read_bytes()).hexdigest()[:16]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return which of COLUMNS the rows carry; none where an older manifest does not say."""
        return tuple(self.manifest.get("columns", ()))

    def require(self, columns: Iterable[str], method: str) -> None:
        """UserError unless the rows carry the companions that `method` needs."""
        missing = [column for column in columns if column not in self.columns]
        if missing:
            # A negative cannot be without an augmented text.
            needed = COLUMNS[: COLUMNS.index(missing[0]) + 1]
            options = " and ".join(f"--{name}-column" for name in needed)
            raise UserError(
                f"corpus {str(self.path)!r} has no column '{missing[0]}_text', which method "
                f"{method!r} needs: prepare it again with {options}, with --triples or from "
                "`sick:DIR`"
            )

    def check_tokenizer(self, encoder: str, tokenizer_hash: str, max_length: int) -> None:
        """UserError unless the ids are this encoder's, cut no shorter than `max_length`."""
        check_tokens(self.path / MANIFEST_FILE, self.manifest)
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

    def batch(self) -> Batch:
        """All rows with their companions, in the order of the parts."""
        return batch_of(self.table(ids_columns(self.columns)), self.columns)

    def sentences(self) -> Ragged:
        """The token ids of all rows without companions, in the order of the parts."""
        return ragged_column(self.table(["input_ids"])["input_ids"])

    def texts(self) -> dict[int, str]:
        """The sentence of each id."""
        tables = [read_table(path, ["id", "text"]) for path in self._parts()]
        ids = chain.from_iterable(table["id"].to_pylist() for table in tables)
        texts = chain.from_iterable(table["text"].to_pylist() for table in tables)
        return dict(zip(ids, texts, strict=True))

    def table(self, columns: list[str], parts: Sequence[int] | None = None) -> pa.Table:
        """Columns of the parts with these numbers, one after another; None: of all."""
        paths = self._parts()
        chosen = paths if parts is None else [paths[number] for number in parts]
        return pa.concat_tables([pq.read_table(path, columns=columns) for path in chosen])

    def part_rows(self) -> tuple[int, ...]:
        """Rows of each part; UserError when they are not those of the manifest."""
        rows = tuple(pq.read_metadata(path).num_rows for path in self._parts())
        if sum(rows) != len(self):
            raise UserError(
                f"the parts of corpus {str(self.path)!r} hold {sum(rows)} rows and its "
                f"{MANIFEST_FILE} says {len(self)}: prepare it again"
            )
        return rows

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("part-*.parquet"))


def _kind_of(manifest: Any) -> str:
    """Return what the folder of a manifest that is no corpus's holds, in words."""
    if isinstance(manifest, dict) and "index" in manifest:
        return "an index of vectors (`cotbert index`)"
    if isinstance(manifest, dict) and "dimension" in manifest:
        return "a folder of vectors (`cotbert embed`)"
    return f"a folder with a {MANIFEST_FILE} of another kind"


def batch_of(table: pa.Table, columns: Sequence[str]) -> Batch:
    """The rows of id columns (ids_columns) as a batch."""
    sentences, *companions = (ragged_column(table[name]) for name in ids_columns(columns))
    return Batch(sentences, **dict(zip(columns, companions, strict=True)))


def ids_columns(columns: Sequence[str]) -> list[str]:
    """Names of the columns that hold a row's token ids, given its companions."""
    return ["input_ids", *(f"{name}_ids" for name in columns)]


def text_columns(columns: Sequence[str]) -> list[str]:
    """Names of the columns that hold a row's texts, given its companions."""
    return ["text", *(f"{name}_text" for name in columns)]


def corpus_table(ids: pa.Array, texts: Sequence[pa.Array], tokens: Sequence[Ragged]) -> pa.Table:
    """Rows of a part: their ids, and their sentences and companions as texts and as tokens.

    ids int64, texts strings; texts and tokens are the sentences', then those of each companion.
    """
    companions = COLUMNS[: len(tokens) - 1]
    arrays, names = [ids], ["id"]
    for text, values, ids_name, lists in zip(
        text_columns(companions), texts, ids_columns(companions), tokens, strict=True
    ):
        arrays += [values, _list_array(lists)]
        names += [text, ids_name]
    fields = [pa.field(n, a.type, nullable=False) for n, a in zip(names, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _list_array(ragged: Ragged) -> pa.ListArray:
    offsets = pa.array(ragged.offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(ragged.flat, pa.int32()))


def ragged_column(column: pa.ChunkedArray) -> Ragged:
    """A column of id lists, chunk by chunk without a copy into Python."""
    parts = []
    for chunk in column.chunks:
        lengths = np.diff(np.asarray(chunk.offsets))
        parts.append(Ragged.from_lengths(np.asarray(chunk.flatten()), lengths))
    return concatenate(parts)
