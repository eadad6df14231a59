"""What a model folder holds besides its encoder, copied to a folder made from it."""

from __future__ import annotations

import shutil
from pathlib import Path

from cotbert_core.encoder.locations import POOLING_CONFIG_FILE, saved_part
from cotbert_core.files import write_text
from cotbert_core.saving.keyword_weights import WEIGHTS_FILE
from cotbert_core.saving.lineage import CARD_FILE

# What the card says of an int8 graph stands at its end, under this heading.
INT8_HEADING = "\n## int8\n"


def copy_source_files(model: str, folder: Path) -> None:
    """Copy the weights of keyword search of an encoder NAME, and its card if this package wrote it,
    into the folder of the same encoder. Its int8 graph is not copied, nor what the card says of it.
    """
    if (file := saved_part(model, WEIGHTS_FILE)).is_file():
        shutil.copyfile(file, folder / WEIGHTS_FILE)
    own = saved_part(model, POOLING_CONFIG_FILE).is_file()
    if own and (file := saved_part(model, CARD_FILE)).is_file():
        text = file.read_text(encoding="utf-8", errors="replace")  # a user may have edited it
        card, heading, _ = text.partition(INT8_HEADING)
        if heading:
            write_text(folder / CARD_FILE, f"{card.rstrip()}\n")
        else:
            shutil.copyfile(file, folder / CARD_FILE)
