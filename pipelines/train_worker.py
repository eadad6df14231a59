"""What every training worker runs: load, restore, then step, check, report (Ray Train).

All that a worker needs comes in one plain dict; the mathematics is cotbert_core's.
"""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.train
import ray.train.torch
import torch
from torch import nn

from cotbert_core.backbone import load_backbone
from cotbert_core.batch import Batch
from cotbert_core.distributed import encode_together, rank, world_size
from cotbert_core.evaluation import Pairs, score_pairs
from cotbert_core.methods import Method, build_method
from cotbert_core.settings import TrainSettings, build
from cotbert_core.training import batches, make_optimizer, total_steps, train_step
from pipelines.channel import News
from pipelines.corpus import Corpus
from pipelines.tracking import DEV_SPEARMAN, LOSS
from pipelines.verdicts import WAIT_SECONDS, may_go_on

STATE_FILE = "state.pt"


@dataclass
class Training:
    """The state of a run on one worker: all that a checkpoint holds, and what steps need."""

    settings: TrainSettings
    method: Method
    model: nn.Module
    optimizer: torch.optim.Optimizer
    corpus: Batch
    dev: dict[str, Pairs]
    mailbox: Any
    judged: Path | None = None
    """Where a sweep says whether the run may go on; None: nobody asks."""
    step: int = 0
    told: list[News] = field(default_factory=list)
    """All news so far. A checkpoint keeps it, since what a kill caught on its way is told again."""

    @property
    def total(self) -> int:
        return total_steps(len(self.corpus), self.settings)


def train_worker(job: dict[str, Any]) -> None:
    """The whole run of one worker. job: settings, corpus, dev, cpus, mailbox, judged."""
    torch.set_num_threads(job["cpus"])
    training = _set_up(job)
    _restore(training)
    if training.step == 0:
        _check(training)
    elif not _may_go_on(training, wait=0):
        return
    settings = training.settings
    for step, rows in batches(
        len(training.corpus), settings, training.step, training.total, rank()
    ):
        _step(training, step, rows)
        if step % settings.eval_every == 0 or step == training.total:
            _report(training, _check(training))
            if step < training.total and not _may_go_on(training):
                return


def _may_go_on(training: Training, wait: float = WAIT_SECONDS) -> bool:
    return training.judged is None or may_go_on(training.judged, training.step, wait)


def _set_up(job: dict[str, Any]) -> Training:
    if torch.cuda.is_available():
        # Before anything is put on "cuda": workers of one machine see all of its GPUs.
        torch.cuda.set_device(ray.train.torch.get_device())
    settings = build(TrainSettings, job["settings"])
    _seed(settings.seed)
    backbone = load_backbone(settings.encoder, dropout=settings.dropout)
    method = build_method(backbone, settings).to(backbone.device)
    model = _parallel(method)
    # Weights are equal on all workers; dropout must not be.
    _seed(settings.seed * settings.workers + rank())
    return Training(
        settings=settings,
        method=method,
        model=model,
        optimizer=make_optimizer(method, settings.optimizer),
        corpus=Corpus.open(job["corpus"]).batch().cut(settings.max_length),
        dev=job["dev"],
        mailbox=job["mailbox"],
        judged=Path(job["judged"]) if job["judged"] else None,
    )


def _parallel(method: Method) -> nn.Module:
    if world_size() == 1:
        return method
    return nn.parallel.DistributedDataParallel(method)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _step(training: Training, step: int, rows: np.ndarray) -> None:
    started = time.perf_counter()
    training.model.train()
    batch = training.corpus.take(rows)
    result = train_step(
        training.model, batch, training.optimizer, training.settings, step, training.total
    )
    training.step = step
    _tell(
        training,
        {
            LOSS: result.loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            **result.parts,
            "step_seconds": time.perf_counter() - started,
        },
    )


def _check(training: Training) -> float:
    """Mean dev Spearman x 100 over the dev sets, the sentences shared out over the workers."""
    encoder = training.method.sentence_encoder

    def encode(sentences: Any) -> np.ndarray:
        return encoder.encode(sentences, precision=training.settings.precision)

    started = time.perf_counter()
    scores = {
        name: score_pairs(lambda s: encode_together(encode, s), pairs).spearman
        for name, pairs in training.dev.items()
    }
    mean = sum(scores.values()) / len(scores)
    each = {f"{DEV_SPEARMAN}.{name}": score for name, score in scores.items()}
    seconds = {"check_seconds": time.perf_counter() - started}
    _tell(training, {DEV_SPEARMAN: mean, **(each if len(each) > 1 else {}), **seconds})
    return mean


def _tell(training: Training, values: dict[str, float]) -> None:
    news = {"step": training.step, "total": training.total, "values": values}
    training.told.append(news)
    if rank() == 0:
        ray.get(training.mailbox.put.remote([news]))


def _report(training: Training, dev_spearman: float) -> None:
    """A checkpoint of everything that the next step depends on, on every worker."""
    metrics = {DEV_SPEARMAN: dev_spearman, "step": training.step}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(_random_states(), Path(folder) / f"random-{rank()}.pt")
        if rank() == 0:
            state = {
                "step": training.step,
                "method": training.method.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "told": training.told,
            }
            torch.save(state, Path(folder) / STATE_FILE)
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def _restore(training: Training) -> None:
    """Go on from the latest checkpoint, when Ray Train has one for this run."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return
    with checkpoint.as_directory() as folder:
        state = load_state(Path(folder))
        for kind, random_state in _random_of(Path(folder)).items():
            (torch.cuda if kind == "cuda" else torch).set_rng_state(random_state)
    training.method.load_state_dict(state["method"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.step, training.told = state["step"], state["told"]
    if rank() == 0:
        ray.get(training.mailbox.put.remote(training.told))


def _random_of(folder: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(folder / f"random-{rank()}.pt", weights_only=True))


def _random_states() -> dict[str, torch.Tensor]:
    """What dropout draws from next."""
    states = {"cpu": torch.get_rng_state()}
    return states | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def load_state(folder: Path, *, mapped: bool = False) -> dict[str, Any]:
    """A checkpoint's state, on the CPU. mapped: a part is read when it is used, so whoever wants
    the weights alone does not read the optimizer's twice as many; the file must stay so long."""
    path = folder / STATE_FILE
    return dict(torch.load(path, map_location="cpu", weights_only=True, mmap=mapped))
