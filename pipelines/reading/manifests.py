"""Check the manifest of a corpus, of embeddings or of an index before anything in it is used.

The folder may come from elsewhere, so values of a wrong type or an impossible size are refused
here. Entries that nothing uses are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from cotbert_core.errors import UserError
from cotbert_core.training.batches import COLUMNS

# The held-out queries of a corpus.
HELD_OUT_FILE = "held-out.parquet"
# The `scale` of embeddings whose int8 vectors have each their own, in a column of that name.
EACH_ROW = "row"


def _first_columns(columns: list[str]) -> list[str]:
    if columns != list(COLUMNS[: len(columns)]):
        raise ValueError(f"it should be none, or the first of {', '.join(COLUMNS)}")
    return columns


# No more rows than 63-bit ids can distinguish, no more tokens or dimensions than any model has.
_Rows = Annotated[int, Field(ge=0, le=1 << 62)]
_Size = Annotated[int, Field(ge=1, le=1 << 20)]
_Text = Annotated[str, Field(min_length=1)]
_Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Corpus(BaseModel, strict=True):
    rows: _Rows
    columns: Annotated[list[str], AfterValidator(_first_columns)] = []
    max_length: _Size
    encoder: _Text
    tokenizer_hash: _Text


class _Embeddings(BaseModel, strict=True):
    rows: _Rows
    dimension: _Size
    model: _Text
    truncated_from: _Size | None = None
    passage_words: _Size | None = None
    scale: Literal["row"] | _Scale | list[_Scale] | None = None
    precision: _Text = "-"
    vocabulary: dict[str, int] = {}
    readout: _Text | None = None
    template: _Text | None = None
    denoise: _Text | None = None
    head: _Text | None = None
    full_stop: bool | None = None
    model_digest: _Text | None = None
    id_column: _Text | None = None
    limit: _Rows | None = None
    inputs: list[_Text] = []
    text_column: _Text = "text"


class _Index(BaseModel, strict=True):
    rows: Annotated[int, Field(ge=1, le=1 << 62)]
    made_of: _Text
    embeddings: _Embeddings


_KINDS: dict[str, tuple[type[BaseModel], str, str]] = {
    "corpus": (_Corpus, "a corpus", "cotbert prepare"),
    "embeddings": (_Embeddings, "embeddings", "cotbert embed"),
    "index": (_Index, "an index", "cotbert index"),
}


def check_manifest(file: Path, manifest: Any, kind: str) -> dict[str, Any]:
    """Return a manifest; UserError for one that is not of this kind, a key of _KINDS."""
    model, what, command = _KINDS[kind]
    if kind == "embeddings" and isinstance(manifest, Mapping) and "made_of" in manifest:
        raise UserError(
            f"{str(file.parent)!r} is an index: give the embeddings that it was made of, "
            f"{str(manifest['made_of'])!r}"
        )
    try:
        model.model_validate(manifest if isinstance(manifest, Mapping) else {})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(name for name in map(str, first["loc"]) if name.isidentifier())
        fault = f"{key} is {first['input']!r:.80} ({first['msg']})"
        if first["type"] == "missing":
            fault = f"it has no {key!r}"
        raise UserError(
            f"{str(file)!r} is not the manifest of {what}: {fault}: give a folder of `{command}`, "
            "or copy this one again"
        ) from None
    return dict(manifest)
