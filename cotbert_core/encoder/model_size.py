"""Check that a folder's configuration matches its weights, before memory is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.files import read_object

# The keys of config.json that determine the size of a model.
SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
MOST_LAYERS = 1000


def check_model_size(location: str) -> None:
    """Raise UserError if a folder's config.json describes a model larger than its weights.

    transformers allocates the tables that the configuration describes before it reads the weights,
    so a damaged configuration could take all memory. A hub name is not checked.
    """
    folder = Path(location)
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not weights or not (folder / "config.json").is_file():
        return
    config = read_object(folder / "config.json")
    hidden, inner, layers, *rows = (_size(folder, config, key) for key in SIZES)
    hidden = min(hidden, _size(folder, config, "embedding_size") or hidden)
    # safetensors use at least one byte per number.
    if max(hidden * max(hidden, inner, *rows), layers) > max(weights, MOST_LAYERS):
        raise UserError(
            f"{str(folder / 'config.json')!r} describes a model that is larger than the "
            f"{weights:,} bytes of its weights: copy the whole folder again"
        )


def _size(folder: Path, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise UserError(
            f"{str(folder / 'config.json')!r} gives {key} as {str(value)[:80]!r}, which is not a "
            "whole number: copy the folder again"
        )
    return value or 0
