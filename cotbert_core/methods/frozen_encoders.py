"""Frozen encoders that compare a batch's sentences: RankCSE's teachers, DCLR's complement.

Letters: b rows of this worker, B rows of the global batch.
"""

from __future__ import annotations

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


def open_frozen(role: str, name: str, trained: Backbone) -> SentenceEncoder:
    """Open an encoder for a role, such as teacher; UserError if its tokenizer differs."""
    encoder = SentenceEncoder.from_pretrained(name)
    if encoder.backbone.tokenizer.hash != trained.tokenizer.hash:
        raise UserError(
            f"{role} {name!r} has another tokenizer than encoder {trained.name!r}: a {role} "
            "reads the token ids of the corpus; give one with the same vocabulary"
        )
    return encoder


@torch.no_grad()
def similarities(
    encoder: SentenceEncoder, sentences: Ragged, precision: Precision
) -> tuple[Tensor, Work]:
    """Return the cosines (b, B) of this worker's and all workers' sentences, and the work."""
    own = encoder.vectors(sentences, precision=precision)
    lengths = sentences.lengths + encoder.bound.length
    flops = encoder_flops(encoder.backbone.model, lengths, backward=False)
    return cosines(own, gather(own)), Work(tokens=float(lengths.sum()), flops=flops)
