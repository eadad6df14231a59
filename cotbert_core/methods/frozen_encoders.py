"""Frozen encoders that compare a batch's sentences: RankCSE's teachers, DCLR's complement.

Letters: b rows of this worker, B rows of the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.errors import UserError
from cotbert_core.losses import cosines
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.distributed import gather
from cotbert_core.training.flops import Work, encoder_flops


def open_frozen(setting: str, name: str, trained: Backbone) -> SentenceEncoder:
    """Open the encoder that a setting of the method names; UserError if its tokenizer differs."""
    with of_setting(setting):
        encoder = SentenceEncoder.from_pretrained(name)
        require_tokenizer(encoder.backbone, trained)
    return encoder


@contextmanager
def of_setting(setting: str) -> Iterator[None]:
    """Name the method's setting in a UserError about the encoder that is opened in the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"method.{setting}: {error}") from None


def require_tokenizer(encoder: Backbone, trained: Backbone) -> None:
    """Raise UserError if an encoder cannot read the token ids of the corpus."""
    if encoder.tokenizer.hash != trained.tokenizer.hash:
        raise UserError(
            f"encoder {encoder.name!r} has another tokenizer than encoder {trained.name!r}, whose "
            "token ids it reads: give one with the same vocabulary"
        )


@torch.no_grad()
def similarities(
    encoder: SentenceEncoder, sentences: Ragged, precision: Precision
) -> tuple[Tensor, Work]:
    """Return the cosines (b, B) of this worker's and all workers' sentences, and the work."""
    own = encoder.vectors(sentences, precision=precision)
    lengths = sentences.lengths + encoder.bound.length
    flops = encoder_flops(encoder.backbone.model, lengths, backward=False)
    return cosines(own, gather(own)), Work(tokens=float(lengths.sum()), flops=flops)
