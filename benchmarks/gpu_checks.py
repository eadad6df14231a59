"""The checks of `python -m benchmarks.gpu_check`: each takes a Setup and yields its rows.

They run on any device, so a test can run them on a CPU with a tiny encoder. A check that needs a
GPU (waits for the device, several GPUs) yields a row that says so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks.method_table import ALL_METHODS
from cotbert_core.encoder import forward
from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.methods import Method, build_method
from cotbert_core.methods import denosent as denosent_module
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from cotbert_core.training.batches import Batch
from cotbert_core.training.flops import Work, measured_peak_flops
from cotbert_core.training.step import make_optimizer, train_step

PAPERS = ("cot-bert", "promptbert", "promptbert-supervised", "optiprompt", "denosent", "simcse")
METHODS = {name: ALL_METHODS[name] for name in PAPERS}
# Relative limits: a GPU adds numbers in any order, which changes the last bits of fp32.
GRADIENT_LIMIT, COSINE_LIMIT, LOSS_LIMIT = 1e-4, 0.999, 1e-2
WAIT_LIMIT = 1


@dataclass(frozen=True)
class Setup:
    """The machine and sizes of the checks.

    gpus: number of parallel workers; on a CPU the number of processes. encoder, batch: encoder and
    sentences per step of the numerical checks. large, large_batch, steps: encoder, sentences per
    step and steps of the speed checks. home: folder for files. run_steps: steps of a whole run,
    which is killed after its first checkpoint; checkpoints are run_steps / 4 apart. rows: number of
    rows of each `cotbert embed`.
    """

    device: torch.device
    gpus: int
    encoder: str
    large: str
    texts: tuple[str, ...]
    home: Path
    batch: int = 32
    large_batch: int = 256
    steps: int = 30
    run_steps: int = 200
    rows: int = 200_000

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


@dataclass(frozen=True)
class Check:
    """The result of a check, a row of the table."""

    name: str
    result: str
    limit: str
    ok: bool


def below(name: str, value: float, limit: float) -> Check:
    return Check(name, f"{value:.1e}", f"<= {limit:.0e}", bool(value <= limit))


def near(name: str, cosine: float) -> Check:
    """Return the check that the least cosine of two encoders' vectors is high enough."""
    return Check(name, f"{cosine:.6f}", f">= {COSINE_LIMIT}", cosine >= COSINE_LIMIT)


def settings_for(encoder: str, batch: int, **changes: Any) -> TrainSettings:
    few = {"batch_size": batch, "precision": "fp32", "dropout": 0.1}
    settings = override(TrainSettings(encoder=encoder), few | changes)
    if not hasattr(settings.method, "temperature"):
        return settings
    # This temperature keeps the loss away from 0 for untrained encoders too.
    return override(settings, {"method.temperature": 0.5})


def method_of(settings: TrainSettings) -> Method:
    torch.manual_seed(1)
    backbone = load_backbone(
        settings.encoder, dropout=settings.dropout, attention=settings.attention
    )
    return build_method(backbone, settings).to(backbone.device).train()


def batch_of(setup: Setup, size: int, start: int = 0) -> Batch:
    """Return a batch whose paired texts are its sentences in another order."""
    ids = load_tokenizer(setup.encoder)(setup.texts[start : start + size], 32)
    positive, negative = (ids.take(np.roll(np.arange(len(ids)), n)) for n in (1, 2))
    return Batch(ids, positive, negative)


def gradient_of(settings: TrainSettings, batch: Batch) -> Tensor:
    """Return all gradients of one step as a vector, with the same dropout each time."""
    method = method_of(settings)
    torch.manual_seed(2)
    method(batch).loss.backward()
    return torch.cat([p.grad.flatten() for p in method.parameters() if p.grad is not None]).cpu()


def apart(left: Tensor, right: Tensor) -> float:
    """Return the distance of two vectors relative to the length of the second."""
    return float((left - right).norm() / right.norm())


def gradients(setup: Setup) -> Iterator[Check]:
    """Check the gradient of mini-batches.

    With dropout it is compared with the same mini-batches with all activations kept, without
    dropout with one batch.
    """
    batch = batch_of(setup, setup.batch)
    for name, kind in METHODS.items():
        settings = settings_for(
            setup.encoder, setup.batch, mini_batch_size=max(1, setup.batch // 4), **kind
        )
        found = gradient_of(settings, batch)
        with kept_activations():
            kept = gradient_of(settings, batch)
        yield below(f"gradient in chunks, dropout, {name}", apart(found, kept), GRADIENT_LIMIT)
        still = {"dropout": 0.0}
        if name == "denosent":
            still |= {"method.dropout": 0.0, "method.decoder_dropout": 0.0}
        chunked = gradient_of(override(settings, still), batch)
        whole = gradient_of(override(settings, still | {"mini_batch_size": None}), batch)
        yield below(f"gradient in chunks, {name}", apart(chunked, whole), GRADIENT_LIMIT)


@contextmanager
def kept_activations() -> Iterator[None]:
    """Keep the activations of mini-batches instead of recomputing them."""
    keep = lambda call, *inputs, device: call(*inputs)  # noqa: E731
    with (
        patch.object(forward, "recomputed", keep),
        patch.object(denosent_module, "recomputed", keep),
    ):
        yield


def waits(setup: Setup) -> Iterator[Check]:
    """Check how often the host waits for the device in a step, as counted by torch."""
    if not setup.on_gpu:
        yield Check("waits a step", "no GPU", f"<= {WAIT_LIMIT}", True)
        return
    for name, kind in METHODS.items():
        settings = settings_for(setup.encoder, setup.batch, precision="auto", **kind)
        method = method_of(settings)
        optimizer, batch = make_optimizer(method, settings.optimizer), batch_of(setup, setup.batch)
        train_step(method, batch, optimizer, settings, 1, 9)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                train_step(method, batch, optimizer, settings, 2, 9)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        count = sum("synchroniz" in str(warning.message) for warning in caught)
        limit = f"<= {WAIT_LIMIT}"
        yield Check(f"waits a step, {name}", str(count), limit, count <= WAIT_LIMIT)


def attentions(setup: Setup) -> Iterator[Check]:
    """Check that packed rows give the vectors of padded ones, in the device's number format."""
    found, seconds = {}, {}
    for way in ("sdpa", "unpadded"):
        encoder = SentenceEncoder.from_pretrained(setup.large, readout="mean", attention=way)  # type: ignore[arg-type]
        texts = setup.texts[: setup.large_batch * 8]
        encoder.encode(texts)
        started = time.perf_counter()
        found[way] = encoder.encode(texts)
        seconds[way] = time.perf_counter() - started
    least = float(cosines(found["sdpa"], found["unpadded"]).min())
    yield near("sdpa and unpadded, least cosine", least)
    ratio = seconds["sdpa"] / seconds["unpadded"]
    yield Check("unpadded, times as fast as sdpa", f"{ratio:.2f}", "", True)


def speed(setup: Setup) -> Iterator[Check]:
    """Measure the steps per second of CoT-BERT with a BERT-base, and their share of the peak."""
    rate = measured_peak_flops("auto", setup.device)
    yield Check("fastest matrix product, TFLOP/s", f"{rate / 1e12:.1f}", "", True)
    for way in ("auto", "unpadded"):
        settings = settings_for(setup.large, setup.large_batch, precision="auto", attention=way)
        method = method_of(settings)
        batches = [batch_of(setup, setup.large_batch, n * setup.large_batch) for n in range(4)]

        _steps(method, batches, 3)
        seconds, flops = _steps(method, batches, setup.steps)
        share = flops / seconds / rate
        name = f"CoT-BERT step, BERT-base, batch {setup.large_batch}, {way}"
        yield Check(f"{name}, a second", f"{1 / seconds:.2f}", "> 0", 0 < seconds < np.inf)
        yield Check(f"{name}, share of the peak", f"{share:.1%}", "0 to 100 %", 0 < share <= 1)
        if setup.on_gpu:
            peak = torch.cuda.max_memory_allocated() / 2**30
            yield Check(f"{name}, GiB", f"{peak:.1f}", "", True)
            torch.cuda.reset_peak_memory_stats()


def _steps(method: Method, batches: Sequence[Batch], count: int) -> tuple[float, float]:
    """Return the seconds and model FLOPs per step, averaged over `count` steps."""
    optimizer = make_optimizer(method, method.settings.optimizer)
    method.work, started = Work(), time.perf_counter()
    for number in range(count):
        batch = batches[number % len(batches)]
        train_step(method, batch, optimizer, method.settings, number + 1, count + 1)
    return (time.perf_counter() - started) / count, method.work.flops / count
