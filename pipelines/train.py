"""cotbert train: train an encoder by a recipe on a corpus, tracked in MLflow.

The output folder holds settings.json (written first), baseline.json, checkpoints/ and metrics.jsonl
during the run, then model/ (best by dev score), report.html and, written last, result.json; with
--profile also profile/. Then the checkpoints are deleted, unless --keep-checkpoints keeps them.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import absolute_name
from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from cotbert_core.methods import build_method
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, flatten, override
from cotbert_core.training.checkpoints import Checkpoint, best
from cotbert_core.training.shuffle_windows import window_rows
from pipelines.options.kept_files import MODEL_ALONE, KeptFiles
from pipelines.recording import tracking
from pipelines.recording.dev_metric import FOUND_FIRST, before
from pipelines.recording.metric_names import DEV_MRR10, DEV_SPEARMAN, LOSS, MFU, TOKENS_PER_SECOND
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.message_queue import Message, message_queue
from pipelines.runtime.polling import polled
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, check_output, open_output
from pipelines.storage.resumable_output import locked_output
from pipelines.training import profiling
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.checkpoint_removal import remove_checkpoints
from pipelines.training.dev_sets import (
    DevSets,
    dev_digest,
    dev_metric,
    dev_name,
    graded,
    with_pairs,
)
from pipelines.training.documents import (
    streamed_rows,
    training_steps,
)
from pipelines.training.fitting import CHECKPOINTS, TrainingError, TrainingRun, fit
from pipelines.training.inputs import check_inputs
from pipelines.training.metrics_follower import MetricsFollower
from pipelines.training.metrics_log import METRICS_FILE, MetricsLog, read_log
from pipelines.training.profile_table import write_table
from pipelines.training.resources import check_gpus
from pipelines.training.training_metadata import training_metadata


def train(
    settings: TrainSettings,
    corpus: Corpus,
    dev: DevSets,
    output: Path,
    *,
    resume: bool = False,
    verbose: bool = False,
    parent: str | None = None,
    name: str | None = None,
    recipe: str = "",
    tags: Mapping[str, str] = MappingProxyType({}),
    callbacks: Sequence[Any] = (),
    early_stopping: bool = False,
    profile: bool = False,
    patience: float = 0.0,
    baseline: Baseline | None = None,
    inside: Sequence[str] = (),
    kept: KeptFiles = MODEL_ALONE,
) -> dict[str, Any]:
    """Train and return the result; UserError before anything starts, TrainingError afterwards.

    parent, name, tags: those of its MLflow run. recipe: the one that the settings come from.
    callbacks: callbacks of Ray Train, for a sweep.
    early_stopping: whether the sweep decides after every dev check if the run continues
    (pipelines.training.early_stopping).
    profile: whether to write a profile to `output` (pipelines.training.profiling).
    patience: seconds to wait for another process that writes the output.
    baseline: that of the settings' encoder on these dev sets; None to compute it here.
    inside: names of folders that may be in `output` before the run begins.
    kept: what stays after the run has ended well, besides the model.
    """
    settings = override(settings, {"encoder": absolute_name(settings.encoder)})
    notes = check_inputs(settings, corpus)
    part_rows, together = None, window_rows(settings, len(corpus))
    if together is not None:
        part_rows = streamed_rows(settings, corpus)
        notes.append(f"the corpus is streamed: about {together:,} rows are shuffled together")
    if profile:
        profiling.check_steps(training_steps(settings, corpus))
    digests = {"corpus_digest": corpus.digest, "dev_digest": dev_digest(dev)}
    shown = with_pairs(flatten(settings), dev)
    record = {"settings": shown, **digests}
    output = check_output(output, "run", record, resume, inside)
    with (
        on_all_nodes(output, (corpus.path, settings.encoder), verbose),
        locked_output(output, patience),
    ):
        check_gpus(settings)
        # Another run may have ended, or begun, while this one waited for the lock.
        output = open_output(output, "run", record, resume, inside)
        _check_metrics(output)
        params = {**shown, "corpus": str(corpus.path), **digests}
        params |= {"recipe": recipe} if recipe else {}
        called = name or tracking.run_name(
            recipe or settings.method.name, Path(settings.encoder), output
        )
        with tracking.tracked_run(
            "train",
            params,
            name=called,
            about=_about(settings, corpus, dev),
            parent=parent,
            home=output,
            queue_folder=output,
        ) as run:
            run.dataset(corpus)
            for note in notes:
                say(f"note: {note}")
            run.tags({**tags, **({"notes": "; ".join(notes)} if notes else {})})
            folder = output / profiling.FOLDER if profile else None
            encoder = settings.encoder
            own = {encoder: settings.precision}
            found = baselines(output, own, dev, run, {encoder: baseline})[encoder]
            stopping, hooks = early_stopping, tuple(callbacks)
            training = TrainingRun(
                settings, corpus.path, dev, output, stopping, hooks, part_rows, folder, kept
            )
            return _run(training, corpus, run, verbose, found)


def _about(settings: TrainSettings, corpus: Corpus, dev: DevSets) -> str:
    """Return what a run does, in a sentence for MLflow."""
    return (
        f"Trains {Path(settings.encoder).name} by {settings.method.name} on the {len(corpus):,} "
        f"rows of {corpus.path}, {training_steps(settings, corpus):,} steps of "
        f"{settings.batch_size}. The model is that of the step with the best dev score on "
        f"{dev_name(dev)}."
    )


def _check_metrics(output: Path) -> None:
    """UserError when a resumed run has checkpoints and the numbers of their steps are gone."""
    begun = any((output / CHECKPOINTS).glob("step-????????"))
    if begun and not (output / METRICS_FILE).is_file():
        raise UserError(
            f"output {str(output)!r} holds checkpoints and no {METRICS_FILE} with the numbers of "
            "their steps: put the file back, or give a new folder"
        )


def _run(
    training: TrainingRun, corpus: Corpus, run: tracking.Run, verbose: bool, baseline: Baseline
) -> dict[str, Any]:
    """Run the workers, save the best model and write the report; return the result."""
    settings, output = training.settings, training.output
    steps = training_steps(settings, corpus)
    follower = MetricsFollower(run, output, settings.batch_size, steps)
    say(f"starting {settings.workers} worker{'s' if settings.workers > 1 else ''}")
    with (
        ray_session(verbose, output),
        polled(follower.poll),
        message_queue(_say_warnings) as messages,
    ):
        fit(training, messages)
    follower.close()
    log = read_log(output / METRICS_FILE, settings.batch_size)
    from pipelines.reports import training_page  # matplotlib would delay the first step by 0.5 s

    chosen = _save_best(training, corpus, log, baseline)
    result = _result(training, log, chosen, run.id, baseline)
    profiled = _profile_table(training.profile) if training.profile else []
    training_page.write_training_report(output / REPORT_FILE, result, log.rows, settings, profiled)
    metric = dev_metric(training.dev).name
    run.metrics({"best_step": result["best_step"], f"best_{metric}": result[metric]})
    run.tags({"model_folder": str(output / "model")})
    made_by = {"method": settings.method.name, "encoder": settings.encoder}
    run.model(output / "model", made_by, {metric: result[metric]}, chosen.step)
    others = [profiling.FOLDER] if training.profile else []
    others += ["model"] if training.kept.log_model else []
    for name in (REPORT_FILE, SETTINGS_FILE, *others):
        run.artifact(output / name)
    write_json(output / RESULT_FILE, result)
    # Not before: a run that is killed until here continues from them.
    remove_checkpoints(output, training.checkpoints, training.kept, chosen.path)
    return result


def _say_warnings(messages: Sequence[Message]) -> None:
    for message in messages:
        say(f"warning: {message['warning']}")


def _profile_table(folder: Path) -> list[profiling.Row]:
    """Write the profile's table and return its steps."""
    rows = profiling.read_steps(folder / profiling.STEPS_FILE)
    write_table(folder, rows)
    return rows


def _save_best(
    training: TrainingRun, corpus: Corpus, log: MetricsLog, baseline: Baseline
) -> Checkpoint:
    """Save the model of the checkpoint with the best dev score, and return the checkpoint."""
    output = training.output
    with warnings.catch_warnings(record=True) as damaged:
        warnings.simplefilter("always")
        found = best(output / CHECKPOINTS)
    for warning in damaged:
        say(f"warning: {warning.message}")
    if found is None:
        raise TrainingError(
            f"no checkpoint in {str(output / CHECKPOINTS)!r} can be read: train again in a new "
            "folder"
        )
    facts = training_metadata(corpus, training.dev, log, found.step, baseline)
    _save_model(training, found.load(mapped=True)["method"], output / "model", facts)
    return found


def _save_model(
    training: TrainingRun, weights: dict[str, Any], path: Path, facts: TrainingMetadata
) -> None:
    settings = training.settings
    method = build_method(load_backbone(settings.encoder), settings)
    method.load_state_dict(weights)
    # A run that was killed between its model and its result left a model with the same weights.
    shutil.rmtree(path, ignore_errors=True)
    pooling = replace(method.pooling, settings=with_pairs(flatten(settings), training.dev))
    encoder = SentenceEncoder(method.finished, pooling, method.kept_head)
    with warnings.catch_warnings(record=True) as caught:
        encoder.save_pretrained(path, facts)
    for warning in caught:
        say(f"warning: {warning.message}")


def _beside(training: TrainingRun, log: MetricsLog, step: int) -> dict[str, float]:
    """Return the dev scores that do not choose, at `step` and before training: with held-out
    documents MRR@10 and the graded pairs'."""
    if dev_metric(training.dev) is not FOUND_FIRST:
        return {}
    names = (
        DEV_MRR10,
        *(f"{DEV_SPEARMAN}.{name}" for name in graded(training.dev)),
    )
    found = {name: log.rows[step][name] for name in names}
    return found | {before(name): log.rows[0][name] for name in names}


def _result(
    training: TrainingRun,
    log: MetricsLog,
    chosen: Checkpoint,
    run_id: str | None,
    baseline: Baseline,
) -> dict[str, Any]:
    settings, metric = training.settings, dev_metric(training.dev)
    return {
        "method": settings.method.name,
        "encoder": settings.encoder,
        "steps": log.last_step,
        "best_step": chosen.step,
        "dev": dev_name(training.dev),
        metric.name: chosen.score,
        metric.before: log.rows[0][metric.name],
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
