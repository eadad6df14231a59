"""Compare an adaptation with a hand-written sentence-transformers script, scores included.

    python -m benchmarks.adapted_score CORPUS [--steps N] [--batch-size N] [--learning-rate X]

Both train all-MiniLM-L6-v2 on the same pairs of a sentence and the rest of its document, with the
same batches and learning rates: ours with the recipe `documents`, the script with
MultipleNegativesRankingLoss, once in fp32, its trainer's default, and once in bf16. Each model is
read by its own library and searches the held-out documents of CORPUS. Only the training is timed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.adapting import Peer
from benchmarks.harness import device, machine, machine_line
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM
from cotbert_core.evaluation.held_out import score_held_out
from cotbert_core.evaluation.pairs import Encode, EncodeFunctions
from cotbert_core.methods import build_method
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision, TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import learning_rate, make_optimizer, train_step
from pipelines.recipes import RECIPES
from pipelines.runtime.progress import table
from pipelines.storage.corpus import Corpus
from pipelines.storage.held_out_file import read_held_out
from pipelines.training.data import open_data, own_batches


def ours(settings: TrainSettings, batches: list[Batch]) -> tuple[float, Encode]:
    """Return the seconds of the training, and the trained encoder."""
    torch.manual_seed(settings.seed)
    method = build_method(load_backbone(settings.encoder), settings).to(device()).train()
    optimizer = make_optimizer(method, settings.optimizer)
    started = time.perf_counter()
    for step, batch in enumerate(batches, start=1):
        train_step(method, batch, optimizer, settings, step, len(batches))
    seconds = time.perf_counter() - started
    return seconds, SentenceEncoder(method.backbone, method.pooling).encode


def by_hand(
    settings: TrainSettings, batches: list[Batch], precision: Precision
) -> tuple[float, Encode]:
    """Return the seconds of the script's training, and its model."""
    torch.manual_seed(settings.seed)
    both = Peer()
    both.model.train()
    rate = settings.optimizer.learning_rate
    optimizer = torch.optim.AdamW(both.model.parameters(), lr=rate, weight_decay=0.0)
    started = time.perf_counter()
    for step, batch in enumerate(batches, start=1):
        assert batch.augmented is not None
        features = [_padded(both, side) for side in (batch.sentences, batch.augmented)]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, len(batches), settings.optimizer)
        both.step(features, optimizer, precision)
    seconds = time.perf_counter() - started
    both.model.eval()
    return seconds, lambda texts: both.model.encode(list(texts), normalize_embeddings=True)


def _padded(both: Peer, texts: Ragged) -> dict[str, Any]:
    """Return texts in token ids as the script's features, with its special tokens."""
    tokenizer = both.model.tokenizer
    begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    rows = [[begin, *texts[row].tolist(), end] for row in range(len(texts))]
    padded = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    return {name: values.to(device()) for name, values in padded.items()}


def run(given: argparse.Namespace) -> None:
    """Train all three and print their scores and seconds."""
    budget = {
        "batch_size": given.batch_size,
        "max_steps": given.steps,
        "optimizer.learning_rate": given.learning_rate,
    }
    settings = override(RECIPES["documents"](), {**budget, "precision": "bf16", "encoder": MINILM})
    corpus, held_out = Corpus.open(given.corpus), read_held_out(given.corpus, "test")
    data = open_data(corpus, None, settings)
    batches = [batch for _, batch, _ in own_batches(data, settings, 0, given.steps)]
    before = SentenceEncoder.from_pretrained(MINILM).encode
    rows = [("untouched", 0.0, before), ("ours, bf16", *ours(settings, batches))]
    for precision in ("fp32", "bf16"):
        rows.append((f"by hand, {precision}", *by_hand(settings, batches, precision)))
    base, cells = rows[1][1], []
    for name, seconds, encode in rows:
        found = score_held_out(EncodeFunctions(encode), held_out)
        times = f"{seconds / base:.2f}" if seconds else ""
        scores = f"{found.found_first:.1f}", f"{found.mrr10:.1f}"
        cells.append((name, *scores, f"{seconds:.0f}", times))
    print(machine_line(machine()))
    print(table(cells, ("encoder", "found first, %", "MRR@10", "seconds", "times ours")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapted_score")
    parser.add_argument("corpus", type=Path, help="a corpus prepared with --documents, --hold-out")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=6e-5)
    return parser


if __name__ == "__main__":
    run(_parser().parse_args())
