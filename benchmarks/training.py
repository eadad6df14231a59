"""Compare a CoT-BERT training step with that of the released code, on the same batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.harness import (
    Formats,
    Row,
    Step,
    compare_formats,
    device,
    loss_gap,
    own_steps,
    plain_step,
    token_batches,
)
from benchmarks.released_step import ReleasedCotBert
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.methods.cot_bert import CotBert
from cotbert_core.settings import OptimizerSettings, Precision, TrainSettings
from cotbert_core.training.batches import Batch

LEARNING_RATE = 3e-5
BATCH, LOSS_TOLERANCE = 64, 1e-4
MINILM_PAIRS: Formats = (("bf16", "fp32", 4.5), ("fp32", "fp32", 1.6), ("bf16", "bf16", None))


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds of a step of 64 sentences, a new batch in each round."""
    batches = token_batches(texts, rounds + 1, BATCH)
    return compare_formats(
        f"training step, batch {BATCH}",
        MINILM_PAIRS,
        lambda p: ours(MINILM, p, batches),
        lambda p: released(MINILM, p, batches),
        rounds,
        f"same loss to {loss_difference(MINILM, batches[0]):.0e}",
    )


def _lists(batch: Batch) -> list[list[int]]:
    return [batch.sentences[i].tolist() for i in range(len(batch))]


def _method(encoder: str, precision: Precision, batch: Batch) -> CotBert:
    settings = TrainSettings(
        encoder=encoder,
        batch_size=len(batch),
        precision=precision,
        optimizer=OptimizerSettings(learning_rate=LEARNING_RATE),
    )
    return CotBert(load_backbone(encoder), settings).to(device())


def ours(encoder: str, precision: Precision, batches: Sequence[Batch]) -> Step:
    return own_steps(_method(encoder, precision, batches[0]), batches)


def released(encoder: str, precision: Precision, batches: Sequence[Batch]) -> Step:
    model = ReleasedCotBert(locate_encoder(encoder)).to(device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    lists = [_lists(batch) for batch in batches]
    return lambda i: plain_step(model, optimizer, precision, lambda: model(lists[i]))


@torch.no_grad()
def loss_difference(encoder: str, batch: Batch) -> float:
    """Return the difference of the two losses of a batch: one head, fp32, no dropout."""
    own = _method(encoder, "fp32", batch).eval()
    peer = ReleasedCotBert(locate_encoder(encoder)).to(device()).eval()
    peer.dense.load_state_dict(own.head.dense.state_dict())
    return loss_gap(float(own(batch).loss), float(peer(_lists(batch))), LOSS_TOLERANCE)
