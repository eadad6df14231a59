"""The loop of every training worker: load, restore, then step, check, save.

The mathematics is in cotbert_core.
"""

from __future__ import annotations

import time
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

from torch.profiler import record_function

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.threads import set_threads
from cotbert_core.methods import build_method
from cotbert_core.training.batches import Batch
from cotbert_core.training.checkpoint_writer import CheckpointWriter
from cotbert_core.training.devices import use_device
from cotbert_core.training.distributed import (
    encode_together,
    gather_objects,
    in_parallel,
    rank,
    sums,
)
from cotbert_core.training.flops import Work, measured_peak_flops
from cotbert_core.training.memory import keep_freed_memory
from cotbert_core.training.step import make_optimizer, train_step
from pipelines.recording.metric_names import (
    LOSS,
    MFU,
    MODEL_FLOPS_PER_SECOND,
    PADDING_SHARE,
    TOKENS_PER_SECOND,
)
from pipelines.training.data import open_data, own_batches
from pipelines.training.dev_sets import MaskedRows, dev_metric, first_of, score_dev
from pipelines.training.early_stopping import WAIT_SECONDS, should_continue
from pipelines.training.metrics_writer import MetricsWriter
from pipelines.training.profiling import profiler
from pipelines.training.training_run import TrainingRun
from pipelines.training.training_state import (
    Training,
    finish_saving,
    log_metrics,
    restore,
    save,
    seed_all,
    warn_slow_precision,
)


def ray_train_worker(job: dict[str, Any]) -> None:
    """Run one of several workers on the device that Ray Train assigns to it."""
    from ray.train.torch import get_device  # takes 3.4 s, which a single worker saves

    use_device(get_device())
    train_worker(job)


def train_worker(job: dict[str, Any]) -> None:
    """Run one worker on this process's device.

    job: the driver's `run` (a TrainingRun), the `attempt`'s key, the `cpus` of a worker, and the
    queue of `messages`.
    """
    keep_freed_memory()
    set_threads(job["cpus"])
    training = _set_up(job)
    restore(training)
    warn_slow_precision(training)
    if training.step == 0:
        if job["run"].options.check_before:
            _check(training)
    elif not _should_continue(training, wait=0):
        return
    try:
        _steps(training, job["run"].profile)
    finally:
        finish_saving(training)
        training.metrics.close()


def _steps(training: Training, profile: Path | None) -> None:
    """Run the remaining steps with their dev checks. profile: folder of the profile, if any."""
    settings, device = training.settings, training.method.backbone.device
    done, total = training.step, training.total
    with profiler(profile, device, done, total, settings.eval_every) as traced:
        for step, batch, waited in own_batches(training.corpus, settings, done, total):
            _step(training, step, batch, waited)
            checked = step % settings.eval_every == 0 or step == total
            if checked:
                save(training, _check(training))
            if traced is not None:
                traced.step()
            if checked and step < total and not _should_continue(training):
                return


def _should_continue(training: Training, wait: float = WAIT_SECONDS) -> bool:
    """Return the sweep's decision after this step, which only rank 0 reads.

    Each worker would see the file at another time, and those that continue would wait forever for
    the others.
    """
    if training.early_stopping is None:
        return True
    own = rank() == 0 and should_continue(training.early_stopping, training.step, wait)
    return bool(gather_objects(own)[0])


def _set_up(job: dict[str, Any]) -> Training:
    run: TrainingRun = job["run"]
    settings = run.settings
    run.corpus.require_unchanged()  # a worker may start again long after the driver opened it
    seed_all(settings.seed)
    backbone = load_backbone(
        settings.encoder, dropout=settings.dropout, attention=settings.attention
    )
    method = build_method(backbone, settings).to(backbone.device)
    model = in_parallel(method)
    # Weights are equal on all workers, but dropout must differ.
    seed_all(settings.seed * settings.workers + rank())
    on_gpu = backbone.device.type == "cuda"
    return Training(
        settings=settings,
        method=method,
        model=model,
        optimizer=make_optimizer(method, settings.optimizer),
        corpus=open_data(run.corpus, run.part_rows, settings),
        dev=run.dev,
        messages=job["messages"],
        folder=run.checkpoints,
        writer=CheckpointWriter(run.checkpoints, job["attempt"], background=on_gpu),
        metrics=MetricsWriter(run.metrics_file),
        early_stopping=run.output if run.options.early_stopping else None,
        measured_peak_flops=sums([measured_peak_flops(settings.precision, backbone.device)])[0],
    )


def _step(training: Training, step: int, batch: Batch, waited: float) -> None:
    """Run a step. waited: seconds spent waiting for the batch, which count as part of the step."""
    started = time.perf_counter()
    training.model.train()
    training.method.work = Work()
    training.method.step = step
    result = train_step(
        training.model, batch, training.optimizer, training.settings, step, training.total
    )
    training.step = step
    work = Work(*sums(astuple(training.method.work)))  # of all workers
    seconds = waited + time.perf_counter() - started
    log_metrics(
        training,
        {
            LOSS: result.loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            **result.parts,
            "data_wait_seconds": waited,
            "step_seconds": seconds,
            TOKENS_PER_SECOND: work.tokens / seconds,
            PADDING_SHARE: work.padding_share,
            MODEL_FLOPS_PER_SECOND: work.flops / seconds,
            MFU: work.flops / seconds / training.measured_peak_flops,
        },
    )


def _check(training: Training) -> float:
    """Log a dev check and return the score that chooses the step; each worker encodes a share."""
    encode = training.method.dev_encoder.functions(training.settings.precision)
    started = time.perf_counter()
    with record_function("dev check"):
        masked = first_of(training.dev, MaskedRows)
        if masked is not None:
            scores = masked.score(training.method)
        else:
            together = encode.wrapped(lambda one: partial(encode_together, one))
            scores = score_dev(together, training.dev)
    log_metrics(training, {**scores, "check_seconds": time.perf_counter() - started})
    return scores[dev_metric(training.dev).name]
