"""The formats of inputs, recognised by a prefix or a suffix."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.reading import docstrings, hub_datasets, locations


@dataclass(frozen=True)
class Format:
    """What inputs of a format look like; `readers.py` has its reader.

    endings: of its files. prefix: of inputs that are not files. of_text: its files are text in an
    encoding, perhaps compressed. of_lines: each line is a row, so that a file may be cut after any
    of them. has_columns: its rows have named columns. delimiter: of the cells of a row.
    """

    endings: tuple[str, ...] = ()
    prefix: str = ""
    of_text: bool = False
    of_lines: bool = False
    has_columns: bool = False
    delimiter: str = ""


FORMATS = {
    "txt": Format((".txt", ".md", ".rst"), of_text=True, of_lines=True),
    "csv": Format((".csv",), of_text=True, has_columns=True, delimiter=","),
    "tsv": Format((".tsv",), of_text=True, has_columns=True, delimiter="\t"),
    "jsonl": Format((".jsonl", ".ndjson"), of_text=True, of_lines=True, has_columns=True),
    "parquet": Format((".parquet",), has_columns=True),
    "docstrings": Format(prefix=docstrings.PREFIX),
    "hub": Format(prefix=hub_datasets.PREFIX, has_columns=True),
}
OF_TEXT = {kind for kind, one in FORMATS.items() if one.of_text}
OF_LINES = {kind for kind, one in FORMATS.items() if one.of_lines}
WITH_COLUMNS = {kind for kind, one in FORMATS.items() if one.has_columns}
DELIMITERS = {kind: one.delimiter for kind, one in FORMATS.items() if one.delimiter}
_KINDS = {ending: kind for kind, one in FORMATS.items() for ending in one.endings}
# Files that describe the data beside them: read only if an input has no data files but txt.
ABOUT_DATA = (".md", ".rst")
ENDINGS = f"{', '.join(_KINDS)}, text formats also with {' or '.join(locations.COMPRESSED)}"


def kind_of(name: str) -> str | None:
    """Return the format of an input by its prefix or suffix; None if it is unknown."""
    for kind, one in FORMATS.items():
        if one.prefix and name.startswith(one.prefix):
            return kind
    ending, compression = locations.suffixes(name)
    found = _KINDS.get(ending)
    return found if found in OF_TEXT or not compression else None


def is_file(kind: str) -> bool:
    """Return whether inputs of a format are files."""
    return not FORMATS[kind].prefix
