"""Where a trained folder comes from: the encoder of its first training, and the data of its last.

Both are read from the folder's own files, its cotbert.json and its card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import (
    MINILM,
    MINILM_HUB,
    POOLING_CONFIG_FILE,
    encoder_path,
)
from cotbert_core.errors import UserError
from cotbert_core.files import read_object

CARD_FILE = "README.md"
# The setting in cotbert.json that names the encoder of the first training, if there were several.
BASE_MODEL = "base_model"
_HUB_NAME = re.compile(r"[\w][\w.-]*(/[\w.-]+)?")


def base_model(name: str) -> str | None:
    """Return the hub name of an encoder NAME; None for a folder."""
    known = MINILM_HUB if name == MINILM else name
    return known if _HUB_NAME.fullmatch(known) and not encoder_path(name).exists() else None


def published_encoder(name: str) -> str:
    """Return the hub name of an encoder NAME, or words for a folder without this machine's path."""
    return base_model(name) or f"a folder named {Path(name).name}"


def first_encoder(name: str) -> str:
    """Return the encoder NAME that the first training began from, if NAME is a trained folder.

    The cotbert.json of a folder names the encoder of its own training, which may be such a folder
    too. A folder saved without a training, such as one that `adapt` hands back untouched, names it
    in its card. What cannot be read is the first.
    """
    seen = set[str]()
    while name not in seen:
        seen.add(name)
        settings = _settings_in(encoder_path(name) / POOLING_CONFIG_FILE)
        name = str(
            settings.get(BASE_MODEL) or settings.get("encoder") or _base_in_card(name) or name
        )
    return name


def _base_in_card(name: str) -> str:
    """Return the base model in the card of a folder saved here, "" for none or any other NAME."""
    folder = encoder_path(name)
    if not (folder / POOLING_CONFIG_FILE).is_file():
        return ""
    front = _card_of(folder).partition("\n---\n")[0]
    found = re.search(r'^base_model: "([^"]+)"$', front, re.MULTILINE)
    return found[1] if found else ""


def _settings_in(path: Path) -> Mapping[str, Any]:
    """Return the settings of the training in a cotbert.json, empty if there are none."""
    try:
        found = read_object(path).get("settings") if path.is_file() else None
    except (UserError, OSError):
        found = None
    return found if isinstance(found, dict) else {}


def data_of(folder: Path) -> dict[str, str]:
    """Return the data of a training as the card of its model folder names them."""
    section = _card_of(folder).partition("\n## Data\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w.*?) \| (.*) \|$", section, re.MULTILINE)
    return dict(rows)


def _card_of(folder: Path) -> str:
    """Return the card of a folder, "" if there is none."""
    path = folder / CARD_FILE
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
