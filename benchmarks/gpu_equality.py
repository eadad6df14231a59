"""The checks of `python -m benchmarks.gpu_check` that compare a GPU with the CPU, in fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from transformers import AutoConfig, AutoModelForMaskedLM

from benchmarks.gpu_checks import (
    GRADIENT_LIMIT,
    Check,
    Setup,
    apart,
    batch_of,
    below,
    gradient_of,
    near,
    settings_for,
)
from benchmarks.method_table import ALL_METHODS
from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from cotbert_core.training.devices import use_device

T = TypeVar("T")
LAYERS = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "albert": {**LAYERS, "embedding_size": 32},
    "bert": LAYERS,
    "deberta-v2": {**LAYERS, "relative_attention": True},
    "distilbert": {"dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 128},
    "electra": {**LAYERS, "embedding_size": 32},
    "mpnet": LAYERS,
}
# All but TSDAE, which needs another package.
COMPARED = tuple(name for name in ALL_METHODS if name != "tsdae")


def methods(setup: Setup) -> Iterator[Check]:
    """Check the gradient of each method in its first step, without dropout."""
    encoder = small_encoder(setup, "bert")
    for name in COMPARED:
        settings = method_settings(name, encoder, setup.batch)
        pair = on_both(setup, lambda s=settings: gradient_of(s, batch_of(setup, setup.batch)))
        yield below(f"gradient and that of the CPU, {name}", apart(*pair), GRADIENT_LIMIT)


def method_settings(name: str, encoder: str, batch: int) -> TrainSettings:
    """Return the settings of a step without dropout, and with the encoder as second one."""
    changes = ALL_METHODS[name] | {"dropout": 0.0}
    if name == "denosent":
        changes |= {"method.dropout": 0.0, "method.decoder_dropout": 0.0}
    settings = settings_for(encoder, batch, **changes)
    return override(settings, {f"method.{n}": encoder for n in settings.method.encoders[:1]})


def families(setup: Setup) -> Iterator[Check]:
    """Check the vectors of an encoder of each family."""
    texts = setup.texts[: setup.batch]

    def encode(folder: str) -> Any:
        encoder = SentenceEncoder.from_pretrained(folder, readout="mean")
        return encoder.encode(texts, precision="fp32")

    for family in FAMILIES:
        folder = small_encoder(setup, family)
        least = float(cosines(*on_both(setup, lambda f=folder: encode(f))).min())
        yield near(f"vectors and those of the CPU, {family}, least cosine", least)


def on_both(setup: Setup, compute: Callable[[], T]) -> tuple[T, T]:
    """Return what a function computes on the device of the setup and on the CPU."""
    try:
        use_device("cpu")
        expected = compute()
    finally:
        use_device(setup.device)
    return compute(), expected


def small_encoder(setup: Setup, family: str) -> str:
    """Save a random encoder with the tokenizer of the setup's, with a head for masked tokens."""
    folder = setup.home / f"small-{family}"
    tokenizer = load_tokenizer(setup.encoder).hf
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    config = AutoConfig.for_model(family, initializer_range=0.2, **sizes, **FAMILIES[family])
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
