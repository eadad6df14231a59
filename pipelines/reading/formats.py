"""The formats of inputs, recognised by a prefix or a suffix."""

from __future__ import annotations

from pipelines.reading import docstrings, hub_datasets, locations, sick

KINDS = {
    ".txt": "txt",
    ".md": "txt",
    ".rst": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
# Files that describe the data beside them: read only if an input has no data files but txt.
ABOUT_DATA = (".md", ".rst")
COMPRESSIBLE = ("txt", "csv", "tsv", "jsonl")
ENDINGS = f"{', '.join(KINDS)}, text formats also with {' or '.join(locations.COMPRESSED)}"
_PREFIXES = {docstrings.PREFIX: "docstrings", sick.PREFIX: "sick", hub_datasets.PREFIX: "hub"}


def kind_of(name: str) -> str | None:
    """Return the format of an input by its prefix or suffix; None if it is unknown."""
    for prefix, source in _PREFIXES.items():
        if name.startswith(prefix):
            return source
    ending, compression = locations.suffixes(name)
    kind = KINDS.get(ending)
    return kind if kind in COMPRESSIBLE or not compression else None
