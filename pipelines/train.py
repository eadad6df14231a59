"""cotbert train: train an encoder by a recipe on a corpus, tracked in MLflow.

The output folder holds settings.json (written first), baseline.json, checkpoints/ and metrics.jsonl
during the run, then model/ (best by dev score), report.html and, written last, result.json; with
--profile also profile/.
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
from cotbert_core.method_settings import PositiveSettings
from cotbert_core.methods import Method, build_method
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, flatten, override
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.checkpoints import Checkpoint, best
from cotbert_core.training.sampling import total_steps
from cotbert_core.training.shuffle_windows import window_rows
from pipelines.recording import tracking
from pipelines.recording.dev_metric import FOUND_FIRST, before
from pipelines.reports import training_page
from pipelines.runtime.message_queue import Message, message_queue
from pipelines.runtime.polling import polled
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.runtime.worker_resources import check_cores
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, check_output, open_output
from pipelines.storage.resumable_output import locked_output
from pipelines.training import profiling
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import (
    DevSets,
    dev_digest,
    dev_metric,
    dev_name,
    graded,
    with_pairs,
)
from pipelines.training.documents import (
    check_documents,
    document_notes,
    streamed_rows,
    training_rows,
    training_steps,
)
from pipelines.training.fitting import CHECKPOINTS, Job, TrainingError, fit
from pipelines.training.metrics_follower import MetricsFollower
from pipelines.training.metrics_log import METRICS_FILE, MetricsLog, read_log
from pipelines.training.profile_table import write_table
from pipelines.training.resources import check_gpus
from pipelines.training.sentence_length import cut_notes
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
    tags: Mapping[str, str] = MappingProxyType({}),
    callbacks: Sequence[Any] = (),
    early_stopping: bool = False,
    profile: bool = False,
    patience: float = 0.0,
    baseline: Baseline | None = None,
    inside: Sequence[str] = (),
) -> dict[str, Any]:
    """Train and return the result; UserError before anything starts, TrainingError afterwards.

    parent, name, tags: those of its MLflow run. callbacks: callbacks of Ray Train, for a sweep.
    early_stopping: whether the sweep decides after every dev check if the run continues
    (pipelines.training.early_stopping).
    profile: whether to write a profile to `output` (pipelines.training.profiling).
    patience: seconds to wait for another process that writes the output.
    baseline: that of the settings' encoder on these dev sets; None to compute it here.
    inside: names of folders that may be in `output` before the run begins.
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
        with tracking.tracked_run(
            "train", params, name=name, parent=parent, home=output, queue_folder=output
        ) as run:
            for note in notes:
                say(f"note: {note}")
            run.tags({**tags, **({"notes": "; ".join(notes)} if notes else {})})
            folder = output / profiling.FOLDER if profile else None
            encoder = settings.encoder
            own = {encoder: settings.precision}
            found = baselines(output, own, dev, run, {encoder: baseline})[encoder]
            stopping, hooks = early_stopping, tuple(callbacks)
            job = Job(settings, corpus.path, dev, output, stopping, hooks, part_rows, folder)
            return _run(job, corpus, run, verbose, found)


def _check_metrics(output: Path) -> None:
    """UserError when a resumed run has checkpoints and the numbers of their steps are gone."""
    begun = any((output / CHECKPOINTS).glob("step-????????"))
    if begun and not (output / METRICS_FILE).is_file():
        raise UserError(
            f"output {str(output)!r} holds checkpoints and no {METRICS_FILE} with the numbers of "
            "their steps: put the file back, or give a new folder"
        )


def _run(
    job: Job, corpus: Corpus, run: tracking.Run, verbose: bool, baseline: Baseline
) -> dict[str, Any]:
    """Run the workers, save the best model and write the report; return the result."""
    settings, output = job.settings, job.output
    steps = training_steps(settings, corpus)
    follower = MetricsFollower(run, output, settings.batch_size, steps)
    with (
        ray_session(verbose, output),
        polled(follower.poll),
        message_queue(_say_warnings) as messages,
    ):
        fit(job, messages)
    follower.close()
    log = read_log(output / METRICS_FILE, settings.batch_size)
    chosen = _save_best(job, corpus, log, baseline)
    result = _result(job, log, chosen, run.id, baseline)
    profiled = _profile_table(job.profile) if job.profile else []
    training_page.write_training_report(
        output / "report.html", result, log.rows, settings, profiled
    )
    metric = dev_metric(job.dev).name
    run.metrics({"best_step": result["best_step"], f"best_{metric}": result[metric]})
    profile = [profiling.FOLDER] if job.profile else []
    for name in ("report.html", "model", SETTINGS_FILE, *profile):
        run.artifact(output / name)
    write_json(output / RESULT_FILE, result)
    return result


def _say_warnings(messages: Sequence[Message]) -> None:
    for message in messages:
        say(f"warning: {message['warning']}")


def check_inputs(settings: TrainSettings, corpus: Corpus) -> list[str]:
    """Check settings against corpus and encoder; return notes for the user.

    Raises UserError for any mistake, before a worker starts.
    """
    backbone = load_backbone(settings.encoder, attention=settings.attention)
    corpus.check_tokenizer(settings.encoder, backbone.tokenizer.hash, settings.max_length)
    corpus.require(settings.method.needs, settings.method.name)
    if (settings.method.name == "mlm") != ("packed" in corpus.manifest):
        raise UserError(
            f"method {settings.method.name} does not train on the corpus {str(corpus.path)!r}, "
            f"which is {'' if 'packed' in corpus.manifest else 'not '}packed into rows: method mlm "
            "is trained by `cotbert pretrain`, which packs the corpus, and other methods by "
            "`cotbert train` on a corpus that is not packed"
        )
    check_documents(settings, corpus)
    rows = training_rows(settings, corpus)
    if settings.batch_size > rows:
        which = " with another one in their document" if settings.method.from_documents else ""
        raise UserError(
            f"batch_size is {settings.batch_size} and the corpus {str(corpus.path)!r} has "
            f"{rows} sentences{which}: give a smaller batch_size or more sentences"
        )
    check_cores(settings.workers, settings.cpus_per_worker or 1)
    steps = total_steps(rows, settings)
    if settings.optimizer.warmup_steps >= steps:
        raise UserError(
            f"optimizer.warmup_steps is {settings.optimizer.warmup_steps} and the run has {steps} "
            "steps: give fewer warm-up steps"
        )
    method = build_method(backbone, settings)
    _check_room(method, settings)
    notes = [*cut_notes(settings, corpus), *document_notes(settings, corpus)]
    return [*notes, *method.notes(corpus.columns)]


def _check_room(method: Method, settings: TrainSettings) -> None:
    """Raise UserError if the longest sentence or positive does not fit into the encoder."""
    roles = [r for r in settings.method.template_roles if getattr(settings.templates, r)]
    _check_length(method, "max_length", settings.max_length, roles)
    if isinstance(settings.method, PositiveSettings) and settings.method.positive == "rest":
        around = roles[1:2] or roles  # the positive's template, if there is one
        _check_length(method, "method.rest_length", settings.method.rest_length, around)


def _check_length(method: Method, setting: str, tokens: int, roles: Sequence[str]) -> None:
    """Raise UserError if so many tokens do not fit into the encoder with these templates."""
    for role in roles:
        bound = BoundTemplate.bind(method.template(role), method.backbone.tokenizer.hf)
        if tokens > _longest(method, bound):
            raise UserError(
                f"templates.{role} takes {bound.length} tokens and {setting} is {tokens}, and the "
                f"encoder takes {method.backbone.max_tokens} tokens in total: give --set "
                f"{setting}={_longest(method, bound)} or less"
            )
    plain = BoundTemplate.bind(None, method.backbone.tokenizer.hf)
    if tokens > _longest(method, plain):
        raise UserError(
            f"{setting} is {tokens} and the encoder takes {_longest(method, plain)} tokens besides "
            f"{plain.length} special ones: give --set {setting} of at most that"
        )


def _longest(method: Method, bound: BoundTemplate) -> int:
    """Return the most tokens of a sentence that fit into the encoder with a template."""
    return method.backbone.max_tokens - bound.length


def _profile_table(folder: Path) -> list[profiling.Row]:
    """Write the profile's table and return its steps."""
    rows = profiling.read_steps(folder / profiling.STEPS_FILE)
    write_table(folder, rows)
    return rows


def _save_best(job: Job, corpus: Corpus, log: MetricsLog, baseline: Baseline) -> Checkpoint:
    """Save the model of the checkpoint with the best dev score, and return the checkpoint."""
    output = job.output
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
    facts = training_metadata(corpus, job.dev, log, found.step, baseline)
    _save_model(job, found.load(mapped=True)["method"], output / "model", facts)
    return found


def _save_model(job: Job, weights: dict[str, Any], path: Path, facts: TrainingMetadata) -> None:
    settings = job.settings
    method = build_method(load_backbone(settings.encoder), settings)
    method.load_state_dict(weights)
    # A run that was killed between its model and its result left a model with the same weights.
    shutil.rmtree(path, ignore_errors=True)
    pooling = replace(method.pooling, settings=with_pairs(flatten(settings), job.dev))
    encoder = SentenceEncoder(method.finished, pooling, method.kept_head)
    with warnings.catch_warnings(record=True) as caught:
        encoder.save_pretrained(path, facts)
    for warning in caught:
        say(f"warning: {warning.message}")


def _beside(job: Job, log: MetricsLog, step: int) -> dict[str, float]:
    """Return the dev scores that do not choose, at `step` and before training: with held-out
    documents MRR@10 and the graded pairs'."""
    if dev_metric(job.dev) is not FOUND_FIRST:
        return {}
    names = (tracking.DEV_MRR10, *(f"{tracking.DEV_SPEARMAN}.{name}" for name in graded(job.dev)))
    found = {name: log.rows[step][name] for name in names}
    return found | {before(name): log.rows[0][name] for name in names}


def _result(
    job: Job, log: MetricsLog, chosen: Checkpoint, run_id: str | None, baseline: Baseline
) -> dict[str, Any]:
    settings, metric = job.settings, dev_metric(job.dev)
    return {
        "method": settings.method.name,
        "encoder": settings.encoder,
        "steps": log.last_step,
        "best_step": chosen.step,
        "dev": dev_name(job.dev),
        metric.name: chosen.score,
        metric.before: log.rows[0][metric.name],
        **_beside(job, log, chosen.step),
        **baseline.entries,
        "loss": log.rows[log.last_step][tracking.LOSS],
        "sentences_per_second": round(log.rate(), 2),
        tracking.TOKENS_PER_SECOND: round(log.median(tracking.TOKENS_PER_SECOND), 1),
        tracking.FLOP_USE: round(log.median(tracking.FLOP_USE), 4),
        "workers": settings.workers,
        "seed": settings.seed,
        "mlflow_run_id": run_id,
    }
