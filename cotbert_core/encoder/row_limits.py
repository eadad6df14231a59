"""How many tokens a row of an encoder can hold: its positions."""

from __future__ import annotations

from typing import Any

import torch

from cotbert_core.encoder.pretrained import open_pretrained
from cotbert_core.errors import UserError
from cotbert_core.templates.tokenizing import SentenceTokenizer


def position_start(model: Any) -> int:
    """Return the id of the first position: padding_idx + 1 for the RoBERTa family, 0 for BERT."""
    padding = position_padding(model)
    return 0 if padding is None else padding + 1


def position_padding(model: Any) -> int | None:
    """Return the position id of padding, which the others follow (RoBERTa); None if there is none.

    EuroBERT has no `embeddings`, since its positions are rotary.
    """
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return None if padding is None else int(padding)


def max_tokens(model: Any) -> int:
    """Return the maximum number of tokens in a row of a model, including special tokens."""
    return int(model.config.max_position_embeddings) - position_start(model)


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
        return max_tokens(model)
    except (UserError, AttributeError, ValueError, ImportError):
        return None


def least_tokens(name: str) -> int:
    """Return a number of tokens that a row of an encoder NAME holds at least, 0 if unknown.

    Its config alone tells it, without the second in which the code of the family is imported.
    """
    from transformers import AutoConfig

    try:
        config = open_pretrained(AutoConfig, name)
        # RoBERTa's positions begin after that of padding, MPNet's at 2 whatever its config says.
        return int(config.max_position_embeddings - max(config.pad_token_id, 1) - 1)
    except (UserError, AttributeError, TypeError):
        return 0


def limit_below(tokens: int, name: str) -> int | None:
    """Return the maximum number of tokens in a row of an encoder NAME if it is below `tokens`."""
    if tokens <= least_tokens(name):
        return None
    most = most_tokens(name)
    return most if most is not None and most < tokens else None


def check_max_length(max_length: int, encoder: str, tokenizer: SentenceTokenizer) -> None:
    """Raise UserError if a row of the encoder cannot hold a sentence of `max_length` tokens."""
    special = tokenizer.hf.num_special_tokens_to_add()
    limit = limit_below(max_length + special, encoder)
    if limit is not None:
        most = limit - special
        raise UserError(
            f"max_length is {max_length} and encoder {encoder!r} takes at most {most} tokens "
            f"besides special ones: give {most} or fewer, and leave space for a template"
        )
