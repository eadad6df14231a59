"""How much keyword search adds to an encoder's cosines: weights that its model folder may have."""

from __future__ import annotations

import math
from pathlib import Path

from cotbert_core.choices import KEYWORD_WEIGHT
from cotbert_core.encoder.locations import saved_part
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json

# Not among the files that determine the vectors: embeddings fit a folder with and without it.
WEIGHTS_FILE = "search.json"
_ONE_VECTOR, _PASSAGES = "keyword_weight", "keyword_weight_with_passages"


def save_keyword_weights(folder: Path, one_vector: float, passages: float | None = None) -> None:
    """Write the weights of BM25 for texts of one vector, and for texts with passages."""
    weights = {_ONE_VECTOR: one_vector, _PASSAGES: passages}
    write_json(folder / WEIGHTS_FILE, {key: w for key, w in weights.items() if w is not None})


def keyword_weight(encoder: str, *, passages: bool) -> float:
    """Return the weight that an encoder NAME has for texts with or without passages, else the
    default; UserError for a damaged file."""
    file, key = saved_part(encoder, WEIGHTS_FILE), _PASSAGES if passages else _ONE_VECTOR
    weights = read_json(file) if file.is_file() else {}
    weight = weights.get(key, KEYWORD_WEIGHT) if isinstance(weights, dict) else None
    if not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise UserError(
            f"{key} is {weight!r} in {str(file)!r}: give a number above 0, or delete the file"
        )
    return weight
