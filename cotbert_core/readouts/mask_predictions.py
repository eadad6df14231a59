"""Looks at an encoder's tokens: what the mask predicts, what kinds there are, where they lie.

Letters: N sentences, V vocabulary size, D hidden size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import decoders
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.encoder.template_denoising import template_bias
from cotbert_core.errors import UserError
from cotbert_core.method_settings import Denoise
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate

# PromptBERT section 3 tells apart: tokens that begin a word, subwords, tokens with capitals, and
# (Table 3) those of punctuation alone; digits and special tokens have no letters either.
KINDS = ("word", "subword", "capital", "other")
# Places kept free in BERT's vocabulary and padding of RoBERTa's: never trained.
UNUSED = re.compile(r"\[unused\d+\]|madeupword\d+")


def mask_vectors(
    backbone: Backbone, template: BoundTemplate, sentences: Ragged, denoise: Denoise = "none"
) -> Tensor:
    """(N, D) vectors at the template's last mask, less the empty template's."""
    vectors = encode_rows(backbone, template.wrap(sentences), "mask", backbone.batch_tokens)
    return vectors - template_bias(backbone, template, sentences.lengths, denoise)


def check_top(top: int, size: int) -> None:
    """UserError unless the `top` best of `size` tokens can be shown."""
    if not 1 <= top <= size:
        raise UserError(f"top is {top}: give 1 to {size}, the tokens of the vocabulary")


def top_tokens(logits: Tensor, top: int) -> np.ndarray:
    """(N, V) logits -> (N, top) token ids, best first (PromptBERT Table 7); the smaller id first
    where logits are equal.

    Raises UserError unless 1 <= top <= V.
    """
    check_top(top, logits.shape[-1])
    order = torch.sort(logits, dim=-1, descending=True, stable=True).indices
    return np.asarray(order[..., :top].cpu().numpy())


def token_texts(tokens: Sequence[str], byte_level: bool) -> list[str]:
    """Tokens as a reader knows them: byte-level ones decoded, without the leading blank."""
    if not byte_level:
        return list(tokens)
    decode = decoders.ByteLevel().decode
    return [text.strip() or repr(text) for text in (decode([token]) for token in tokens)]


def token_kinds(
    tokens: Sequence[str], byte_level: bool, special: Sequence[str] = ()
) -> list[str | None]:
    """For each token one of KINDS, or None for a place that the vocabulary keeps free.

    other: a special token or no letter in it. Of the rest, subword: does not begin a word (`##`
    before it in WordPiece, no leading blank in byte-level BPE); capital: begins a word and has a
    capital letter; word: begins a word and has none.
    """
    decode = decoders.ByteLevel().decode
    never = frozenset(special)

    def kind(token: str) -> str | None:
        if UNUSED.fullmatch(token):
            return None
        text = decode([token]) if byte_level else token
        if token in never or not any(map(str.isalpha, text)):
            return "other"
        if not text[0].isspace() if byte_level else text.startswith("##"):
            return "subword"
        return "capital" if any(map(str.isupper, text)) else "word"

    return [kind(token) for token in tokens]


def projection(table: np.ndarray, axes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """(V, D) -> (V, axes) principal components and (axes,) shares of the variance, largest first.

    From the D x D covariance, in float64. A component's sign is free: its largest weight is
    made positive, so that a picture is the same on every machine.
    """
    exact = np.asarray(table, np.float64)
    centred = exact - exact.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    chosen = directions[:, ::-1][:, :axes]
    largest = chosen[np.abs(chosen).argmax(axis=0), np.arange(chosen.shape[1])]
    chosen = chosen * np.where(largest < 0, -1.0, 1.0)
    return centred @ chosen, variances[::-1][:axes] / variances.sum()
