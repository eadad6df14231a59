"""The plan for reading an input, made by `sources.plan`: its files and how they are split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cotbert_core.training.batches import COLUMNS
from pipelines.reading.formats import DELIMITERS, WITH_COLUMNS

# Row r of file f has the number f * 2^40 + r, which is unique and the same in every run.
FILE_BITS = 40
# The option that names the columns whose values are passed through.
KEEP = "--keep"
# Options of reading that a manifest names where they are given.
READING = ("encoding", "delimiter", "limit", "wrapped")


@dataclass(frozen=True)
class Shard:
    """A part of one file that one task reads.

    start, stop: offsets in bytes for a file of lines (stop 0: the whole file), row groups for a
    Parquet file, rows for a data set. first_row: number of its first row in the whole input. rows:
    number of rows, None if unknown before reading. most: maximum number of rows to read. joined:
    the shards of small files, this one's first, that are read one after the other in its place
    (pipelines.reading.file_shards).
    """

    path: str
    kind: str
    start: int = 0
    stop: int = 0
    first_row: int = 0
    files: tuple[str, ...] = ()
    rows: int | None = field(default=None, compare=False, repr=False)
    most: int | None = field(default=None, repr=False)
    joined: tuple[Shard, ...] = ()

    @property
    def parts(self) -> tuple[Shard, ...]:
        """The shards of single files that make it up."""
        return self.joined or (self,)


@dataclass
class Found:
    """What was found while files were split into shards.

    files: by what the user may not want of them, a key of lost_rows._FOUND. text_ids: files whose
    ids are text, each with an example ("" if the column's type is text). types: the types of the
    column `id` and of the passed-through columns of each Parquet file and data set. json_keys: the
    keys in the first rows of the JSON files. unread: whether any of these files has more rows.
    """

    files: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    text_ids: dict[str, str] = field(default_factory=dict)
    types: dict[str, dict[str, Any]] = field(default_factory=dict)
    json_keys: set[str] = field(default_factory=set)
    unread: bool = False


@dataclass(frozen=True)
class ReadPlan:
    """The files to read, their shards and their columns.

    ignored: number of files of unknown format in folders. text_columns: columns that are joined to
    a row's text. paired_columns: columns of the paired texts, in the order of
    cotbert_core.training.batches.COLUMNS. keep: columns whose values are passed through unchanged.
    encoding: of txt, csv, tsv and jsonl files, None for UTF-8. delimiter: of csv and tsv files,
    None for their format's. wrapped: a row of a txt file is a text whose lines are wrapped, not a
    line. keep_paragraphs: a text that will be split into sentences has a line for each of its
    paragraphs. clean: the function that cleans a text, None for no cleaning. id_type: int64 or
    string, the type of the ids in id_column. documents: which rows form a document
    (pipelines.reading.documents); with column:NAME the column is the first of `keep`.
    document_names: the path, as the user gave it, of each file that is a document. whole_files:
    whether the rows of a file are one text, whose id is that path. keep_option: the option that
    names the first column of `keep`.
    """

    shards: list[Shard]
    files: list[str]
    ignored: int
    text_columns: tuple[str, ...]
    id_column: str | None = None
    paired_columns: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    encoding: str | None = None
    delimiter: str | None = None
    id_type: str = "int64"
    documents: str | None = None
    document_names: dict[str, str] = field(default_factory=dict, repr=False)
    wrapped: bool = False
    keep_paragraphs: bool = False
    whole_files: bool = False
    clean: Callable[[str], str] | None = None
    keep_option: str = KEEP
    found: Found = field(default_factory=Found, compare=False, repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the columns of a row's texts, with those of the paired texts."""
        return *self.text_columns, *self.paired_columns

    def text_parts(self, kind: str) -> int:
        """The number of values that a reader of this format yields for a row's text."""
        return len(self.text_columns) if kind in WITH_COLUMNS else 1

    def delimiter_of(self, kind: str) -> str:
        """The delimiter of a file of this format; "" for a format without cells."""
        return (self.delimiter or DELIMITERS[kind]) if kind in DELIMITERS else ""

    def file_of(self, number: int) -> str:
        """The file of a row, by its number in the whole input."""
        return self.files[number >> FILE_BITS]

    @property
    def document_column(self) -> str | None:
        """The column that identifies a row's document, if there is one."""
        by, _, column = (self.documents or "").partition(":")
        return column if by == "column" else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names in COLUMNS of the paired texts of each row."""
        return COLUMNS[: len(self.paired_columns)]


def row_in_file(number: int) -> int:
    """Return the row of a file, from 0, that has this number in the whole input."""
    return number & ((1 << FILE_BITS) - 1)
