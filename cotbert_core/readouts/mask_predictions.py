"""Views of an encoder's tokens: mask predictions, kinds of tokens, a projection of embeddings.

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
from cotbert_core.method_settings.bases import Denoise
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate

# The kinds of PromptBERT section 3: tokens that begin a word, subwords, tokens with capitals, and
# (Table 3) punctuation; digits and special tokens, which have no letters either, count as other.
KINDS = ("word", "subword", "capital", "other")
# Reserved tokens of BERT's vocabulary and padding tokens of RoBERTa's: never trained.
UNUSED = re.compile(r"\[unused\d+\]|madeupword\d+")


def mask_vectors(
    backbone: Backbone, template: BoundTemplate, sentences: Ragged, denoise: Denoise = "none"
) -> Tensor:
    """Return the (N, D) vectors at the template's last mask minus those of the empty template."""
    batches = backbone.batch_tokens, 0
    vectors = encode_rows(backbone, template.wrap(sentences), "mask", *batches)
    return vectors - template_bias(backbone, template, sentences.lengths, denoise, batches=batches)


def check_top(top: int, size: int, name: str = "top") -> None:
    """Raise UserError unless 1 <= top <= size, the number of tokens in the vocabulary."""
    if not 1 <= top <= size:
        raise UserError(f"{name} is {top}: give 1 to {size}, the tokens of the vocabulary")


def top_tokens(logits: Tensor, top: int) -> np.ndarray:
    """Return the (N, top) token ids with the largest (N, V) logits (PromptBERT Table 7).

    The best is first, and of equal logits the smaller id. Raises UserError unless 1 <= top <= V.
    """
    check_top(top, logits.shape[-1])
    order = torch.sort(logits, dim=-1, descending=True, stable=True).indices
    return np.asarray(order[..., :top].cpu().numpy())


def token_texts(tokens: Sequence[str], byte_level: bool) -> list[str]:
    """Return tokens as readable text: byte-level tokens decoded, without the leading blank."""
    if not byte_level:
        return list(tokens)
    decode = decoders.ByteLevel().decode
    return [text.strip() or repr(text) for text in (decode([token]) for token in tokens)]


def token_kinds(
    tokens: Sequence[str],
    begin: Sequence[bool],
    byte_level: bool,
    special: Sequence[str] = (),
) -> list[str | None]:
    """Return for each token one of KINDS, or None for a reserved token.

    other: a special token or a token without letters. subword: another token that does not begin a
    word. capital: begins a word and has a capital letter. word: begins a word and has no capital
    letter. begin: which tokens begin a word (`cotbert_core.readouts.static.begin_words`).
    """
    decode = decoders.ByteLevel().decode
    never = frozenset(special)

    def kind(token: str, begins: bool) -> str | None:
        if UNUSED.fullmatch(token):
            return None
        text = decode([token]) if byte_level else token
        if token in never or not any(map(str.isalpha, text)):
            return "other"
        if not begins:
            return "subword"
        return "capital" if any(map(str.isupper, text)) else "word"

    return list(map(kind, tokens, begin))


def projection(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (V, 2) principal components of a (V, D) table and their shares of the variance.

    The shares are (2,), the largest first. Computed from the D x D covariance in float64. The
    sign of a component is arbitrary: its largest weight is made positive, so that a plot is the
    same on every machine.
    """
    exact = np.asarray(table, np.float64)
    centred = exact - exact.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    chosen = directions[:, ::-1][:, :2]
    largest = chosen[np.abs(chosen).argmax(axis=0), np.arange(2)]
    chosen = chosen * np.where(largest < 0, -1.0, 1.0)
    return centred @ chosen, variances[::-1][:2] / variances.sum()
