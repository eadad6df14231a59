"""Compare a step of masked language modelling with that of transformers' Trainer.

Both train all-MiniLM-L6-v2 with a new head on the same sentences. The peer uses the Trainer's
defaults (DataCollatorForLanguageModeling, AutoModelForMaskedLM, autocast, fused AdamW), on the same
packed rows and on a padded row per sentence. Its head scores the vocabulary at every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.harness import (
    Row,
    Step,
    device,
    first,
    interleave,
    loss_gap,
    number_formats,
    plain_step,
)
from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.encoder.mlm import with_mlm_head
from cotbert_core.encoder.pretrained import no_loading_report
from cotbert_core.methods import build_method
from cotbert_core.methods.mlm import Mlm
from cotbert_core.settings import ROLES, Precision, TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.packing import pack
from cotbert_core.training.step import make_optimizer, train_step

ROWS, CAPACITY = 32, 126
TARGET = 2.0
LOSS_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Work:
    """The packed rows of a step, and their sentences."""

    packed: Ragged
    sentences: Ragged


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds of a step of 32 packed rows, new ones in each round."""
    steps = _work(texts, rounds + 1)
    precision = number_formats()[-1]
    difference = loss_difference(steps[0].packed)
    tasks = {
        "ours": ours(precision, [one.packed for one in steps]),
        "packed": trainer_loop(precision, [one.packed for one in steps]),
        "padded": trainer_loop(precision, [one.sentences for one in steps]),
    }
    for task in tasks.values():
        task(0)
    seconds = interleave(tasks, rounds)
    tokens = float(np.median([len(one.packed.flat) for one in steps[1:]]))
    check = f"same loss to {difference:.0e}; {tokens / seconds['ours']:,.0f} tokens/s"
    return [
        Row(
            f"masked language modelling, {ROWS} rows",
            f"cotbert {precision}",
            f"Trainer's loop {precision}, {how}",
            seconds["ours"],
            seconds[name],
            TARGET,
            check,
        )
        for name, how in (("packed", "packed the same way"), ("padded", "a sentence a row"))
    ]


def _work(texts: Sequence[str], count: int) -> list[Work]:
    """Return the rows of `count` steps."""
    tokenizer = load_tokenizer(MINILM)
    sentences = tokenizer(first(texts, min(len(texts), 16 * ROWS * count)), CAPACITY)
    packed, ends, found = pack(sentences, CAPACITY), sentences.offsets, []
    for step in range(count):
        rows = packed.take(np.arange(step * ROWS, (step + 1) * ROWS))
        start, stop = packed.offsets[[step * ROWS, (step + 1) * ROWS]]
        inside = np.flatnonzero((ends[:-1] >= start) & (ends[1:] <= stop))
        found.append(Work(rows, sentences.take(inside)))
    return found


def _method(precision: Precision) -> Mlm:
    bare = {f"templates.{role}": None for role in ROLES}
    settings = {"encoder": MINILM, "method.name": "mlm", "precision": precision, "max_length": 126}
    torch.manual_seed(0)
    method = build_method(load_backbone(MINILM), override(TrainSettings(), bare | settings))
    assert isinstance(method, Mlm)
    return method.to(device())


def ours(precision: Precision, steps: Sequence[Ragged]) -> Step:
    method = _method(precision).train()
    optimizer = make_optimizer(method, method.settings.optimizer)

    def step(number: int) -> object:
        method.step = number + 1
        batch, total = Batch(steps[number]), len(steps)
        return train_step(method, batch, optimizer, method.settings, number + 1, total)

    return step


def trainer_loop(precision: Precision, steps: Sequence[Ragged]) -> Step:
    from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling

    tokenizer = load_tokenizer(MINILM).hf
    with no_loading_report():
        model = AutoModelForMaskedLM.from_pretrained(locate_encoder(MINILM)).to(device()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    ends = tokenizer.cls_token_id, tokenizer.sep_token_id

    def step(number: int) -> None:
        ids = steps[number]
        lists = (ids[row].tolist() for row in range(len(ids)))
        rows = [{"input_ids": [ends[0], *row, ends[1]]} for row in lists]
        inputs = {name: value.to(device()) for name, value in collate(rows).items()}
        plain_step(model, optimizer, precision, lambda: model(**inputs).loss)

    return step


@torch.no_grad()
def loss_difference(rows: Ragged) -> float:
    """Return the difference to transformers' loss for equal masks, in fp32 without dropout."""
    rows = rows.take(np.arange(4))
    method = _method("fp32").eval()
    own = method(Batch(rows)).loss.item()
    masked = method.masking(rows, method.settings.seed, method.step)
    wrapped = method.bare.wrap(masked.ids)
    labels = method.bare.wrap(rows).ids
    chosen = np.zeros(tuple(labels.shape), bool)
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    chosen[row, np.arange(len(row)) - rows.offsets[row] + 1] = masked.chosen
    labels[~torch.from_numpy(chosen)] = -100
    attended = torch.arange(labels.shape[1]) < wrapped.lengths[:, None]
    inputs: dict[str, Any] = {"input_ids": wrapped.ids, "labels": labels}
    inputs["attention_mask"] = attended.long()
    model = with_mlm_head(method.encoder, method.vocabulary).to(device()).eval()
    peer = model(**{name: value.to(device()) for name, value in inputs.items()}).loss.item()
    return loss_gap(own, peer, LOSS_TOLERANCE)
