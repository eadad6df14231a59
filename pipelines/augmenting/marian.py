"""Find Marian translation models (opus-mt) by hub name or folder, and convert texts to tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import hub_answers, hub_files
from cotbert_core.errors import UserError, first_line, require_packages
from cotbert_core.files import digest, read_json, read_object

# The files to download: a hub repository also has weights for other frameworks.
SMALL_FILES = ("config.json", "vocab.json", "source.spm", "target.spm")
OTHER_FILES = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_CODE = re.compile(r">>[\w-]+<<")
# Default target languages of a model with several.
USUAL_CODES = (">>cmn_Hans<<", ">>eng<<")


@dataclass(frozen=True)
class MarianModel:
    """A model's files. digest: short hash of all files that determine its translations."""

    name: str
    folder: str
    digest: str


def find_marian(name: str, option: str) -> MarianModel:
    """Return the files of a model, downloaded if needed; UserError if there are none.

    option: the option that named the model.
    """
    require_packages("a Marian model", ["sentencepiece", "sacremoses"], "translation")
    folder = _local(name, option) or _fetched(name, option)
    missing = [file for file in SMALL_FILES if not (folder / file).is_file()]
    weights = [file for file in WEIGHTS if (folder / file).is_file()]
    if missing or not weights:
        lacks = ", ".join(missing) or " or ".join(WEIGHTS)
        raise UserError(f"{option} {name!r} has no {lacks}: give a Marian model, such as opus-mt")
    kind = read_object(folder / "config.json").get("model_type")
    if kind != "marian":
        raise UserError(f"{option} {name!r} is a model of type {kind!r}: give a Marian model")
    others = [file for file in OTHER_FILES if (folder / file).is_file()]
    files = (*SMALL_FILES, weights[0], *others)
    return MarianModel(name, str(folder), digest(folder / file for file in files))


def _local(name: str, option: str) -> Path | None:
    """Return the folder of this name, None for a hub name."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{option} {name!r} is not a folder: give an existing folder or a hub name")
    return None


def _fetched(name: str, option: str) -> Path:
    from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

    disable_progress_bars()
    try:
        return hub_files(name, *SMALL_FILES, *OTHER_FILES, *_wanted_weights(name))
    except Exception as error:  # raised in many types: offline, blocked, unknown name
        raise UserError(
            f"{option} {name!r} cannot be downloaded ({first_line(error)}): give a folder, or a "
            "hub name that this machine can reach"
        ) from None


def _wanted_weights(name: str) -> list[str]:
    """Return the name of a weights file; both names if the hub is unreachable."""
    from huggingface_hub import list_repo_files

    if not hub_answers():
        return list(WEIGHTS)
    files = set(list_repo_files(name))
    return [file for file in WEIGHTS if file in files][:1]


class MarianTokens:
    """Convert texts to a model's source tokens, and its target tokens to texts.

    prefix: token of the target language before each sentence, "" for none.
    """

    def __init__(self, model: MarianModel, prefix: str) -> None:
        self.hf = load_tokenizer(model)
        self.prefix = prefix
        positions = int(read_json(Path(model.folder) / "config.json")["max_position_embeddings"])
        self.limit = min(positions, int(self.hf.model_max_length))

    def encode(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Return the ids of each text with the end token, and whether it was truncated."""
        if not texts:
            return [], []
        # After the blank, a sentence that begins with >> is not parsed as a prefix; "</s>" inside a
        # sentence is text.
        shown = [f"{self.prefix} {text}" for text in texts]
        ids: list[list[int]] = self.hf(shown, verbose=False, split_special_tokens=True)["input_ids"]
        cut = [len(row) > self.limit for row in ids]
        end = [self.hf.eos_token_id]
        return [
            row[: self.limit - 1] + end if long else row for row, long in zip(ids, cut, strict=True)
        ], cut

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        texts: list[str] = self.hf.batch_decode(
            [list(row) for row in ids], skip_special_tokens=True, use_source_tokenizer=False
        )
        return texts


@lru_cache(maxsize=2)
def load_tokenizer(model: MarianModel) -> Any:
    from transformers import MarianTokenizer

    try:
        return MarianTokenizer.from_pretrained(model.folder)
    except Exception as error:  # a broken vocabulary can raise errors of many types
        raise UserError(
            f"the tokenizer of {model.name!r} cannot be read ({error}): give a complete Marian "
            "folder"
        ) from None


def choose_prefix(model: MarianModel, prefix: str | None, option: str) -> str:
    """Return the language token for a model's input: `prefix`, or one inferred from its vocabulary.

    It is "" for a vocabulary without such tokens, the token if there is one, and simplified Chinese
    or English if it is among several. Raises UserError otherwise, and for a prefix that is not in
    the vocabulary.
    """
    known = [c for c in load_tokenizer(model).supported_language_codes if _CODE.fullmatch(c)]
    shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
    if prefix is not None:
        if prefix and prefix not in known:
            wanted = f"give one of {shown}" if known else f"it has none: give --{option}-prefix ''"
            raise UserError(f"{option}_prefix {prefix!r} is unknown to {model.name!r}: {wanted}")
        return prefix
    if len(known) <= 1:
        return "".join(known)
    usual = [code for code in USUAL_CODES if code in known]
    if not usual:
        raise UserError(
            f"{option} {model.name!r} writes several languages ({shown}): choose one with "
            f"--{option}-prefix"
        )
    return usual[0]
