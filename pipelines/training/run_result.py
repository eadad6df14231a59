"""The outcome of a training run: the model of its best checkpoint, its result, and what is left of
its checkpoints."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.checkpoints import Checkpoint, best
from pipelines.recording.dev_metric import FOUND_FIRST, SAME_LABEL, before
from pipelines.recording.metric_names import DEV_MRR10, DEV_SPEARMAN, LOSS, MFU, TOKENS_PER_SECOND
from pipelines.runtime.progress import say, shown_warnings
from pipelines.storage.output_folder import RESULT_FILE
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import dev_metric, dev_name, graded, with_pairs
from pipelines.training.fitting import TrainingError
from pipelines.training.metrics_log import MetricsLog
from pipelines.training.training_metadata import training_metadata
from pipelines.training.training_run import TrainingRun


def save_best(training: TrainingRun, log: MetricsLog, baseline: Baseline) -> Checkpoint:
    """Save the model of the checkpoint with the best dev score, and return the checkpoint."""
    with shown_warnings():  # about damaged checkpoints
        found = best(training.checkpoints)
    if found is None:
        raise TrainingError(
            f"no checkpoint in {str(training.checkpoints)!r} can be read: train again in a new "
            "folder"
        )
    facts = training_metadata(training.corpus, training.dev, log, found.step, baseline)
    _save_model(training, found.load(mapped=True)["method"], facts)
    return found


def run_result(
    training: TrainingRun,
    log: MetricsLog,
    chosen: Checkpoint,
    run_id: str | None,
    baseline: Baseline,
) -> dict[str, Any]:
    """Return the result of a run. chosen: the checkpoint of its model."""
    settings, metric = training.settings, dev_metric(training.dev)
    first = log.rows.get(0, {})  # empty if there was no dev check before the first step
    return {
        "method": settings.method.name,
        "encoder": settings.encoder,
        "steps": log.last_step,
        "best_step": chosen.step,
        "dev": dev_name(training.dev),
        metric.name: chosen.score,
        metric.before: first.get(metric.name),
        **_beside(training, log, chosen.step),
        **baseline.entries,
        "loss": log.rows[log.last_step][LOSS],
        "sentences_per_second": round(log.rate(), 2),
        TOKENS_PER_SECOND: round(log.median(TOKENS_PER_SECOND), 1),
        MFU: round(log.median(MFU), 4),
        "workers": settings.workers,
        "seed": settings.seed,
        "mlflow_run_id": run_id,
    }


def _save_model(training: TrainingRun, weights: dict[str, Any], facts: TrainingMetadata) -> None:
    settings, path = training.settings, training.output / "model"
    method = build_method(load_backbone(settings.encoder), settings, initialized=False)
    method.load_state_dict(weights)
    # A run that was killed before its result was written left a model with the same weights.
    shutil.rmtree(path, ignore_errors=True)
    recorded = method.pooling.settings or {}
    pooling = replace(method.pooling, settings=with_pairs(recorded, training.dev))
    encoder = SentenceEncoder(method.finished, pooling, method.kept_head)
    with shown_warnings():
        encoder.save_pretrained(path, facts)


def _beside(training: TrainingRun, log: MetricsLog, step: int) -> dict[str, float | None]:
    """Return the dev scores that do not choose the step, at `step` and before training: with
    held-out documents MRR@10, with them or labelled texts the scores of graded pairs."""
    metric = dev_metric(training.dev)
    if metric not in (FOUND_FIRST, SAME_LABEL):
        return {}
    ranks = (DEV_MRR10,) if metric is FOUND_FIRST else ()
    names = (*ranks, *(f"{DEV_SPEARMAN}.{name}" for name in graded(training.dev)))
    found = {name: log.rows[step][name] for name in names}
    return found | {before(name): log.rows.get(0, {}).get(name) for name in names}


def remove_checkpoints(training: TrainingRun, chosen: Checkpoint) -> None:
    """Delete the checkpoints of a finished run that are not kept; the run is never continued.

    A checkpoint includes the optimizer's state, so it is three times as large as its model.

    chosen: the model's checkpoint. The run's files are flushed to disk first, so a power failure
    cannot lose both.
    """
    keep = training.options.kept.keep_checkpoints
    if keep == "all":
        return
    try:
        _force_to_disk(training.output)
    except OSError as error:
        output = training.output
        say(f"warning: {output} cannot be flushed to disk ({error}): its checkpoints are kept")
        return
    if keep == "none":
        shutil.rmtree(training.checkpoints, ignore_errors=True)
        return
    for path in training.checkpoints.glob("step-*"):
        if path.name != chosen.path.name:
            shutil.rmtree(path, ignore_errors=True)


def _force_to_disk(output: Path) -> None:
    for path in (*(output / "model").rglob("*"), output / RESULT_FILE, output):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
