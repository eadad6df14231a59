"""A CoT-BERT training step against the released way of doing it, on the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.harness import (
    DisagreementError,
    Formats,
    Row,
    Step,
    compare_formats,
    device,
    token_batches,
)
from benchmarks.released_step import ReleasedCotBert, released_step
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.methods.cot_bert import CotBert
from cotbert_core.settings import OptimizerSettings, Precision, TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step

LEARNING_RATE = 3e-5
LOSS_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """The encoder that is trained, and sentences of a batch."""

    encoder: str
    batch: int


# Ours, the peer, and the least ratio wanted.
MINILM_PAIRS: Formats = (("bf16", "fp32", 4.5), ("fp32", "fp32", 1.6), ("bf16", "bf16", None))


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Seconds of a step of 64 sentences, every round with a batch of its own."""
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


def _settings(case: Case, precision: Precision) -> TrainSettings:
    return TrainSettings(
        encoder=case.encoder,
        batch_size=case.batch,
        precision=precision,
        optimizer=OptimizerSettings(learning_rate=LEARNING_RATE),
    )


def _method(case: Case, precision: Precision) -> CotBert:
    return CotBert(load_backbone(case.encoder), _settings(case, precision)).to(device())


def ours(case: Case, precision: Precision, batches: Sequence[Batch]) -> Step:
    method, settings = _method(case, precision).train(), _settings(case, precision)
    optimizer = make_optimizer(method, settings.optimizer)
    total = len(batches)
    return lambda i: train_step(method, batches[i], optimizer, settings, i + 1, total)


def released(case: Case, precision: Precision, batches: Sequence[Batch]) -> Step:
    model = ReleasedCotBert(locate_encoder(case.encoder)).to(device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    lists = [_lists(batch) for batch in batches]
    return lambda i: released_step(model, lists[i], optimizer, bf16=precision == "bf16")


@torch.no_grad()
def loss_difference(case: Case, batch: Batch) -> float:
    """How far the two losses of one batch are apart, with one head, in fp32, without dropout.

    Raises DisagreementError where that is too far to compare their times.
    """
    own = _method(case, "fp32").eval()
    peer = ReleasedCotBert(locate_encoder(case.encoder)).to(device()).eval()
    peer.dense.load_state_dict(own.head.dense.state_dict())
    left, right = float(own(batch).loss), float(peer(_lists(batch)))
    if not abs(left - right) <= LOSS_TOLERANCE:
        raise DisagreementError(
            f"the loss of one batch is {left:.6f} here and {right:.6f} as released"
        )
    return abs(left - right)
