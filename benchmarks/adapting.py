"""Compare a training step on documents with one of sentence-transformers.

Ours is the recipe `documents`: InfoNCE on mean-pooled vectors, the candidate denosent-rest of
`cotbert adapt`. The peer is MultipleNegativesRankingLoss on the same pairs, padded to the longest
one of a batch, as its trainer does. Tokenization is not timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import (
    Formats,
    Row,
    Step,
    compare_formats,
    device,
    loss_gap,
    own_steps,
    plain_step,
)
from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.methods import build_method
from cotbert_core.methods.base import Method
from cotbert_core.settings import Precision, override
from cotbert_core.training.batches import Batch
from pipelines.recipes import RECIPES

BATCH, SENTENCES, TEMPERATURE = 64, 4, 0.05
LOSS_TOLERANCE = 1e-4
Pairs = tuple[list[str], list[str]]
FORMATS: Formats = (("bf16", "fp32", 2.0), ("fp32", "fp32", None), ("bf16", "bf16", None))


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds of a step of 64 documents of four sentences, new ones in each round."""
    batches = [pairs(texts, number) for number in range(rounds + 1)]
    return compare_formats(
        f"training step on documents, batch {BATCH}",
        FORMATS,
        lambda precision: own_steps(_method(precision), [_batch(texts) for texts in batches]),
        lambda precision: peer(precision, batches),
        rounds,
        f"same loss to {loss_difference(batches[0]):.0e}",
        "sentence-transformers",
    )


def pairs(texts: Sequence[str], number: int) -> Pairs:
    """Return the first sentences and the rests of a batch's documents."""
    first = number * BATCH * SENTENCES
    rows = [(first + row * SENTENCES) % (len(texts) - SENTENCES) for row in range(BATCH)]
    rests = [" ".join(texts[row + 1 : row + SENTENCES]) for row in rows]
    return [texts[row] for row in rows], rests


def _method(precision: Precision) -> Method:
    settings = override(RECIPES["documents"](), {"precision": precision, "batch_size": BATCH})
    return build_method(load_backbone(MINILM), settings).to(device())


def _batch(texts: Pairs) -> Batch:
    tokenizer = load_tokenizer(MINILM)
    first, rest = texts
    return Batch(tokenizer(first, 256), tokenizer(rest, 256))


class Peer:
    """sentence-transformers' model and loss."""

    def __init__(self) -> None:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.losses import MultipleNegativesRankingLoss

        self.model = SentenceTransformer(locate_encoder(MINILM), device=str(device()))
        self.loss = MultipleNegativesRankingLoss(self.model, scale=1 / TEMPERATURE)

    def features(self, texts: Pairs) -> list[dict[str, Any]]:
        """Return both sides in padded tokens."""
        sides = [self.model.preprocess(side) for side in texts]
        return [
            {k: v.to(device()) if isinstance(v, Tensor) else v for k, v in side.items()}
            for side in sides
        ]

    def step(
        self, features: list[dict[str, Any]], optimizer: torch.optim.Optimizer, precision: Precision
    ) -> None:
        """Train on one batch."""
        plain_step(self.model, optimizer, precision, lambda: self(features))

    def __call__(self, features: list[dict[str, Any]]) -> Tensor:
        # The modules add their results to the dicts they are given.
        loss: Tensor = self.loss([dict(side) for side in features], None)
        return loss


def peer(precision: Precision, batches: Sequence[Pairs]) -> Step:
    both = Peer()
    both.model.train()
    features = [both.features(texts) for texts in batches]
    optimizer = torch.optim.AdamW(both.model.parameters(), lr=3e-5, weight_decay=0.0)
    return lambda number: both.step(features[number], optimizer, precision)


@torch.no_grad()
def loss_difference(texts: Pairs) -> float:
    """Return the difference of the two losses of a batch, in fp32 without dropout."""
    both = Peer()
    both.model.eval()
    left = float(_method("fp32").eval()(_batch(texts)).parts["contrastive"])
    return loss_gap(left, float(both(both.features(texts))), LOSS_TOLERANCE)
