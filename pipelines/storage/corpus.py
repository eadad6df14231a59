"""Read and write a prepared corpus: data/part-*.parquet and manifest.json.

Parts hold id (int64), text and input_ids (list<int32>: the sentence alone, no special tokens, no
template), so one corpus serves every template. Rows may have paired texts
(cotbert_core.training.batches), each in two more columns: augmented_text and augmented_ids,
negative_text and negative_ids. A corpus with documents also has `document` (63 bits of a hash) and
`position` (int32, the place of the sentence in its document as it was read). held-out.parquet holds
the queries and targets that `prepare --hold-out` took out. The manifest names the paired texts
under `columns`, counts the dropped rows by reason, and is the same for the same input and options.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.files import absolute_path, read_json
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.batches import COLUMNS, Batch
from pipelines.reading.data_folder import part_files
from pipelines.reading.manifests import check_manifest
from pipelines.reading.parquet_batches import read_table

MANIFEST_FILE = "manifest.json"
# The columns of a corpus with documents, int64 and int32.
PLACES = ("document", "position")
# Keys of the manifests of embeddings and of indexes, which the manifest of a corpus never has.
VECTOR_KEYS = {"dimension", "index"}


def is_prepared(path: str | Path) -> bool:
    """Return whether a path is a folder with a manifest, as that of a corpus, and no raw text."""
    return (Path(path).expanduser() / MANIFEST_FILE).is_file()


@dataclass(frozen=True)
class Corpus:
    """An opened corpus folder."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Open a corpus folder; UserError if it holds no finished corpus."""
        path = absolute_path(path)
        if not is_prepared(path):
            raise UserError(
                f"corpus {str(path)!r} has no {MANIFEST_FILE}: make one with `cotbert prepare`"
            )
        manifest = read_json(path / MANIFEST_FILE)
        if not isinstance(manifest, dict) or "rows" not in manifest or VECTOR_KEYS & set(manifest):
            raise UserError(
                f"corpus {str(path)!r} is {_kind_of(manifest)}, not a prepared corpus: give the "
                "text itself, or a folder made by `cotbert prepare`"
            )
        return cls(path, check_manifest(path / MANIFEST_FILE, manifest, "corpus"))

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    @property
    def digest(self) -> str:
        """A short hash of the manifest."""
        return hashlib.sha256((self.path / MANIFEST_FILE).read_bytes()).hexdigest()[:16]

    @property
    def columns(self) -> tuple[str, ...]:
        """The members of COLUMNS that the rows have; older manifests name none."""
        return tuple(self.manifest.get("columns", ()))

    def select_columns(self, used: Collection[str]) -> Corpus:
        """Return this corpus as if its rows had only those paired texts that are in `used`."""
        kept = [name for name in self.columns if name in used]
        return replace(self, manifest={**self.manifest, "columns": kept})

    @property
    def has_documents(self) -> bool:
        """Whether the rows have a document and a position in it."""
        return "documents" in self.manifest

    def require_unpacked(self) -> None:
        """Raise UserError for the packed rows of a pretraining, which have no texts."""
        if "packed" in self.manifest:
            raise UserError(
                f"corpus {str(self.path)!r} is packed already and has no texts: give the corpus it "
                "was packed from"
            )

    def check_tokenizer(self, encoder: str, tokenizer_hash: str, max_length: int) -> None:
        """Raise UserError unless the token ids are this encoder's, cut at `max_length` or later."""
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

    def require_unchanged(self, parts: int | None = None) -> None:
        """Raise UserError if the folder now holds another corpus, or another number of parts."""
        now, before = (one.select_columns(()) for one in (Corpus.open(self.path), self))
        if now.manifest != before.manifest or parts not in (None, len(now.parts())):
            raise UserError(
                f"corpus {str(self.path)!r} was changed while the run read it: put it back and "
                "give the same command again to continue, or give a new output"
            )

    def batch(self) -> Batch:
        """Return all rows with their paired texts, in the order of the parts."""
        return batch_of(self.table(ids_columns(self.columns)), self.columns)

    def texts(self) -> dict[int, str]:
        """Return the sentence of each row id."""
        table = pa.concat_tables(read_table(path, ["id", "text"]) for path in self.parts())
        return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))

    def table(self, columns: list[str], parts: Sequence[int] | None = None) -> pa.Table:
        """Return columns of the parts with these numbers (None: all), concatenated."""
        paths = self.parts()
        chosen = paths if parts is None else [paths[number] for number in parts]
        return pa.concat_tables([pq.ParquetFile(path).read(columns=columns) for path in chosen])

    def part_rows(self) -> tuple[int, ...]:
        """Return the number of rows of each part; UserError if the manifest says otherwise."""
        rows = tuple(pq.read_metadata(path).num_rows for path in self.parts())
        if sum(rows) != len(self):
            raise UserError(
                f"the parts of corpus {str(self.path)!r} hold {sum(rows)} rows and its "
                f"{MANIFEST_FILE} says {len(self)}: prepare it again"
            )
        return rows

    def parts(self) -> list[Path]:
        """Return the Parquet files of the rows, in their order."""
        return part_files(self.path)


def _kind_of(manifest: Any) -> str:
    """Return in words what a folder holds whose manifest is not that of a corpus."""
    if isinstance(manifest, dict) and "index" in manifest:
        return "an index of vectors (`cotbert index`)"
    if isinstance(manifest, dict) and "dimension" in manifest:
        return "a folder of vectors (`cotbert embed`)"
    return f"a folder with a {MANIFEST_FILE} of another kind"


def require_texts(
    corpus: str, columns: Collection[str], needed: Iterable[str], method: str
) -> None:
    """Raise UserError unless a corpus of these columns has the paired texts that `method` needs."""
    missing = [column for column in needed if column not in columns]
    if missing:
        # A row with a negative text has an augmented text too.
        first = COLUMNS[: COLUMNS.index(missing[0]) + 1]
        options = " and ".join(f"--{name}-column" for name in first)
        raise UserError(
            f"corpus {corpus!r} has no column '{missing[0]}_text', which method {method!r} needs: "
            f"prepare it with {options}, or with --triples"
        )


def batch_of(table: pa.Table, columns: Sequence[str]) -> Batch:
    """Return the rows of a table of id columns (`ids_columns`) as a batch."""
    sentences, *others = (ragged_column(table[name]) for name in ids_columns(columns))
    paired_texts: dict[str, Any] = dict(zip(columns, others, strict=True))
    return Batch(sentences, **paired_texts)


def ids_columns(columns: Sequence[str]) -> list[str]:
    """Return the names of the columns with token ids, given the names of the paired texts."""
    return ["input_ids", *(f"{name}_ids" for name in columns)]


def text_columns(columns: Sequence[str]) -> list[str]:
    """Return the names of the columns with texts, given the names of the paired texts."""
    return ["text", *(f"{name}_text" for name in columns)]


def corpus_table(
    ids: pa.Array,
    texts: Sequence[pa.Array],
    tokens: Sequence[Ragged],
    places: Sequence[pa.Array] = (),
) -> pa.Table:
    """Return the table of a part.

    ids: int64. texts: one string array for the sentences and one for each paired text. tokens:
    their token ids, in the same order. places: document and position, of a corpus with documents.
    """
    paired_texts = COLUMNS[: len(tokens) - 1]
    arrays, names = [ids], ["id"]
    for text, values, ids_name, lists in zip(
        text_columns(paired_texts), texts, ids_columns(paired_texts), tokens, strict=True
    ):
        arrays += [values, list_array(lists)]
        names += [text, ids_name]
    arrays += places
    names += PLACES[: len(places)]
    fields = [pa.field(n, a.type, nullable=False) for n, a in zip(names, arrays, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def list_array(ragged: Ragged) -> pa.ListArray:
    offsets = pa.array(ragged.offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(ragged.flat, pa.int32()))


def ragged_column(column: pa.ChunkedArray) -> Ragged:
    """Return a column of id lists as Ragged, chunk by chunk without Python objects."""
    parts = []
    for chunk in column.chunks:
        lengths = np.diff(np.asarray(chunk.offsets))
        parts.append(Ragged.from_lengths(np.asarray(chunk.flatten()), lengths))
    return concatenate(parts)
