"""Check the manifest of a corpus or of embeddings before anything in it is used.

The folder may come from elsewhere, so values of a wrong type or an impossible size are refused
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.training.batches import COLUMNS

# The held-out queries of a corpus, and its first part.
HELD_OUT_FILE, FIRST_PART = "held-out.parquet", "part-000000.parquet"
# Upper limits: more rows than 63-bit ids can distinguish, more tokens or dimensions than any model.
MOST_ROWS, MOST_SIZE = 1 << 62, 1 << 20
_CORPUS_TEXTS = ("encoder", "tokenizer_hash")
_EMBEDDINGS_TEXTS = ("readout", "template", "denoise", "head", "model_digest", "id_column")


def check_corpus(file: Path, manifest: Any) -> dict[str, Any]:
    """Return the manifest of a corpus; UserError for any other manifest."""
    _check_object(file, manifest, "a corpus made by `cotbert prepare`")
    _check_number(file, manifest, "rows", 0, MOST_ROWS)
    check_tokens(file, {"max_length": 1, "encoder": "-", "tokenizer_hash": "-", **manifest})
    columns = manifest.get("columns", [])
    if not isinstance(columns, list) or columns != list(COLUMNS[: len(columns)]):
        raise _wrong(file, "columns", columns, f"none, or the first of {', '.join(COLUMNS)}")
    return dict(manifest)


def check_tokens(file: Path, manifest: Mapping[str, Any]) -> None:
    """Raise UserError unless a manifest has the tokenizer's fields, which training needs."""
    _check_number(file, manifest, "max_length", 1, MOST_SIZE)
    for key in _CORPUS_TEXTS:
        _check_text(file, manifest, key)


def check_embeddings(file: Path, manifest: Any) -> dict[str, Any]:
    """Return the manifest of embeddings; UserError for any other manifest."""
    _check_object(file, manifest, "embeddings made by `cotbert embed`")
    _check_number(file, manifest, "rows", 0, MOST_ROWS)
    _check_number(file, manifest, "dimension", 1, MOST_SIZE)
    for key in ("truncated_from", "passage_words"):
        if manifest.get(key) is not None:
            _check_number(file, manifest, key, 1, MOST_SIZE)
    _check_text(file, manifest, "model")
    for key in _EMBEDDINGS_TEXTS:
        if manifest.get(key) is not None:
            _check_text(file, manifest, key)
    return dict(manifest)


def _check_object(file: Path, manifest: Any, what: str) -> None:
    if not isinstance(manifest, Mapping) or "rows" not in manifest:
        raise UserError(f"{str(file)!r} is not the manifest of {what}: give such a folder")


def _check_number(file: Path, manifest: Mapping[str, Any], key: str, least: int, most: int) -> None:
    value = manifest.get(key)
    if type(value) is not int or not least <= value <= most:
        raise _wrong(file, key, value, f"a whole number from {least} to {most}")


def _check_text(file: Path, manifest: Mapping[str, Any], key: str) -> None:
    if not isinstance(manifest.get(key), str) or not manifest[key]:
        raise _wrong(file, key, manifest.get(key), "a text")


def _wrong(file: Path, key: str, value: Any, rule: str) -> UserError:
    shown = repr(value)[:80] if isinstance(value, str | int | float | None) else "a list or object"
    return UserError(
        f"{str(file)!r} gives {key} as {shown}, and it must be {rule}: copy the folder again or "
        "create it again"
    )
