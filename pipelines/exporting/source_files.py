"""What a model folder holds besides its encoder, copied to a folder made from it."""

from __future__ import annotations

import shutil
from pathlib import Path

from cotbert_core.encoder.locations import POOLING_CONFIG_FILE, saved_part
from cotbert_core.saving.keyword_weights import WEIGHTS_FILE
from cotbert_core.saving.model_card import CARD_FILE


def copy_source_files(model: str, folder: Path) -> None:
    """Copy the weights of keyword search of an encoder NAME, and its card if this package wrote it,
    into the folder of the same encoder."""
    own = saved_part(model, POOLING_CONFIG_FILE).is_file()
    for name in (WEIGHTS_FILE, *([CARD_FILE] if own else [])):
        if (file := saved_part(model, name)).is_file():
            shutil.copyfile(file, folder / name)
