"""Compare a CoT-BERT training step with that of the released code, on the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
LOSS_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """The encoder to train, and the number of sentences of a batch."""

    encoder: str
    batch: int


# Ours, the peer, and the least ratio wanted.
MINILM_PAIRS: Formats = (("bf16", "fp32", 4.5), ("fp32", "fp32", 1.6), ("bf16", "bf16", None))


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds of a step of 64 sentences, a new batch in each round."""
    case = Case(MINILM, 64)
    batches = token_batches(texts, rounds + 1, case.batch)
    return compare_formats(
        f"training step, batch {case.batch}",
        MINILM_PAIRS,
        lambda p: ours(case, p, batches),
        lambda p: released(case, p, batches),
        rounds,
        f"same loss to {loss_difference(case, batches[0]):.0e}",
    )


def _lists(batch: Batch) -> list[list[int]]:
    return [batch.sentences[i].tolist() for i in range(len(batch))]


def _method(case: Case, precision: Precision) -> CotBert:
    settings = TrainSettings(
        encoder=case.encoder,
        batch_size=case.batch,
        precision=precision,
        optimizer=OptimizerSettings(learning_rate=LEARNING_RATE),
    )
    return CotBert(load_backbone(case.encoder), settings).to(device())


def ours(case: Case, precision: Precision, batches: Sequence[Batch]) -> Step:
    return own_steps(_method(case, precision), batches)


def released(case: Case, precision: Precision, batches: Sequence[Batch]) -> Step:
    model = ReleasedCotBert(locate_encoder(case.encoder)).to(device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    lists = [_lists(batch) for batch in batches]
    return lambda i: plain_step(model, optimizer, precision, lambda: model(lists[i]))


@torch.no_grad()
def loss_difference(case: Case, batch: Batch) -> float:
    """Return the difference of the two losses of a batch: one head, fp32, no dropout."""
    own = _method(case, "fp32").eval()
    peer = ReleasedCotBert(locate_encoder(case.encoder)).to(device()).eval()
    peer.dense.load_state_dict(own.head.dense.state_dict())
    return loss_gap(float(own(batch).loss), float(peer(_lists(batch))), LOSS_TOLERANCE)
