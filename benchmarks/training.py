"""A CoT-BERT training step against the released way of doing it, on the same batches.

`run` is of all-MiniLM-L6-v2; `run_base` of BERT-base's shape, whose steps as released take minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.harness import (
    DisagreementError,
    Formats,
    Row,
    Step,
    compare_formats,
    device,
    random_encoder,
    token_batches,
)
from benchmarks.released_step import ReleasedCotBert, released_step
from cotbert_core.backbone import MINILM, load_backbone, locate_encoder
from cotbert_core.batch import Batch
from cotbert_core.methods.cot_bert import CotBert
from cotbert_core.settings import OptimizerSettings, Precision, TrainSettings
from cotbert_core.training import make_optimizer, train_step

LEARNING_RATE = 3e-5
LOSS_TOLERANCE = 1e-4
BASE = {"layers": 12, "width": 768, "heads": 12}


@dataclass(frozen=True)
class Case:
    """pairs: (ours, peer, least ratio wanted)."""

    encoder: str
    batch: int
    pairs: Formats


MINILM_PAIRS: Formats = (("bf16", "fp32", 4.5), ("fp32", "fp32", 1.6), ("bf16", "bf16", None))
# As released, a step of 128 sentences keeps more than 24 GiB of activations even in bf16.
BASE_BATCH = 32
BASE_PAIRS: Formats = (("bf16", "bf16", 2.0),)


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Seconds of a step of 64 sentences, every round with a batch of its own."""
    return _rows(Case(MINILM, 64, MINILM_PAIRS), texts, rounds, "training step, batch 64")


def run_base(texts: Sequence[str], rounds: int) -> list[Row]:
    """Seconds of a step of 32 sentences with an encoder of BERT-base's shape, random weights."""
    with tempfile.TemporaryDirectory() as name:
        case = Case(str(random_encoder(Path(name) / "base", **BASE)), BASE_BATCH, BASE_PAIRS)
        return _rows(case, texts, rounds, f"training step, BERT-base, batch {BASE_BATCH}")


def _rows(case: Case, texts: Sequence[str], rounds: int, what: str) -> list[Row]:
    batches = token_batches(texts, rounds + 1, case.batch)
    return compare_formats(
        what,
        case.pairs,
        lambda p: _ours(case, p, batches),
        lambda p: _released(case, p, batches),
        rounds,
        f"same loss to {_loss_difference(case, batches[0]):.0e}",
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


def _ours(case: Case, precision: Precision, batches: Sequence[Batch]) -> Step:
    method, settings = _method(case, precision).train(), _settings(case, precision)
    optimizer = make_optimizer(method, settings.optimizer)
    total = len(batches)
    return lambda i: train_step(method, batches[i], optimizer, settings, i + 1, total)


def _released(case: Case, precision: Precision, batches: Sequence[Batch]) -> Step:
    model = ReleasedCotBert(locate_encoder(case.encoder)).to(device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    lists = [_lists(batch) for batch in batches]
    return lambda i: released_step(model, lists[i], optimizer, bf16=precision == "bf16")


@torch.no_grad()
def _loss_difference(case: Case, batch: Batch) -> float:
    """How far the two losses of one batch are apart, with one head, in fp32, without dropout.

    Raises DisagreementError where that is too far to compare their times.
    """
    ours = _method(case, "fp32").eval()
    peer = ReleasedCotBert(locate_encoder(case.encoder)).to(device()).eval()
    peer.dense.load_state_dict(ours.head.dense.state_dict())
    own, other = float(ours(batch).loss), float(peer(_lists(batch)))
    if not abs(own - other) <= LOSS_TOLERANCE:
        raise DisagreementError(
            f"the loss of one batch is {own:.6f} here and {other:.6f} as released"
        )
    return abs(own - other)
