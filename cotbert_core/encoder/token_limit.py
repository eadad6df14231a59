"""The token limit of an encoder, from its configuration without its weights."""

from __future__ import annotations

import torch

from cotbert_core.encoder.backbone import Backbone, load_tokenizer
from cotbert_core.encoder.pretrained import open_pretrained
from cotbert_core.errors import UserError


def most_tokens(name: str) -> int | None:
    """Return the maximum number of tokens in a row of an encoder NAME, including special tokens.

    Returns None if only its tokenizer is available, or if it has no fixed number of positions.
    """
    from transformers import AutoConfig, AutoModel

    try:
        config = open_pretrained(AutoConfig, name)
        with torch.device("meta"):  # allocates no memory for weights
            model = AutoModel.from_config(  # type: ignore[no-untyped-call]
                config, trust_remote_code=False
            )
        return Backbone(model, load_tokenizer(name), name).max_tokens
    except (UserError, AttributeError, ValueError, ImportError):
        return None


def check_max_length(max_length: int, encoder: str) -> None:
    """Raise UserError if a row of the encoder cannot hold a sentence of `max_length` tokens."""
    most = most_tokens(encoder)
    if most is not None and max_length > most:
        raise UserError(
            f"max_length is {max_length} and encoder {encoder!r} takes at most {most} tokens: "
            f"give {most} or fewer, and leave space for a template"
        )
