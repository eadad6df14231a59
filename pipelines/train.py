"""cotbert train: a recipe, a corpus and an output folder to a trained, tracked encoder.

The output folder holds settings.json (written first), baseline.json, checkpoints/ and
metrics.jsonl while the run goes on, then model/ (best by dev score), report.html and, last of
all, result.json; profile/ where one is asked for.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cotbert_core.encoder.backbone import from_anywhere, load_backbone
from cotbert_core.errors import UserError
from cotbert_core.evaluation import Pairs
from cotbert_core.files import write_json
from cotbert_core.methods import Method, build_method
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, flatten, override
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.checkpoints import best
from cotbert_core.training.sampling import total_steps
from cotbert_core.training.shuffle_windows import window_rows
from pipelines.recording import tracking
from pipelines.reports import training_page
from pipelines.runtime.metrics_queue import MetricsReceiver
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import check_cores, ray_session
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, check_output, open_output
from pipelines.storage.resumable_output import locked_output
from pipelines.training import profiling
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import dev_digest, dev_name, with_pairs
from pipelines.training.fitting import CHECKPOINTS, Job, TrainingError, fit
from pipelines.training.metrics_log import METRICS_FILE, History
from pipelines.training.profile_table import write_table
from pipelines.training.resources import check_gpus
from pipelines.training.sentence_length import cut_notes
from pipelines.training.training_metadata import training_metadata


def train(
    settings: TrainSettings,
    corpus: Corpus,
    dev: dict[str, Pairs],
    output: Path,
    *,
    resume: bool = False,
    verbose: bool = False,
    parent: str | None = None,
    name: str | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
    callbacks: Sequence[Any] = (),
    judged: bool = False,
    profile: bool = False,
    patience: float = 0.0,
    baseline: Baseline | None = None,
) -> dict[str, Any]:
    """Train and return the result; UserError before anything starts, TrainingError after.

    parent, name, tags: of its MLflow run. callbacks: of Ray Train, for a sweep that listens;
    judged: whether it says after every dev check if the run may go on
    (pipelines.training.early_stopping).
    profile: whether to leave one in `output` (pipelines.training.profiling).
    patience: seconds to wait for another process that writes the output.
    baseline: of the settings' encoder on these dev sets, where it is known; None: scored here.
    """
    settings = override(settings, {"encoder": from_anywhere(settings.encoder)})
    notes = check_inputs(settings, corpus)
    part_rows, together = None, window_rows(settings, len(corpus))
    if together is not None:
        part_rows = corpus.part_rows()
        notes.append(f"the corpus is streamed: about {together:,} rows are shuffled together")
    if profile:
        profiling.check_steps(total_steps(len(corpus), settings))
    digests = {"corpus_digest": corpus.digest, "dev_digest": dev_digest(dev)}
    shown = with_pairs(flatten(settings), dev)
    record = {"settings": shown, **digests}
    output = check_output(output, "run", record, resume)
    with (
        on_all_nodes(output, (corpus.path, settings.encoder), verbose),
        locked_output(output, patience),
    ):
        check_gpus(settings)
        # Another run may have ended, or begun, while this one came to the lock.
        output = open_output(output, "run", record, resume)
        params = {**shown, "corpus": str(corpus.path), **digests}
        with tracking.tracked_run(
            "train", params, name=name, parent=parent, home=output, outbox=output
        ) as run:
            for note in notes:
                say(f"note: {note}")
            run.tags({**tags, **({"notes": "; ".join(notes)} if notes else {})})
            folder = output / profiling.FOLDER if profile else None
            told, encoder = tuple(callbacks), settings.encoder
            own = {encoder: settings.precision}
            found = baselines(output, own, dev, run, {encoder: baseline})[encoder]
            job = Job(settings, corpus.path, dev, output, judged, told, part_rows, folder)
            return _run(job, corpus, run, verbose, found)


def _run(
    job: Job, corpus: Corpus, run: tracking.Run, verbose: bool, baseline: Baseline
) -> dict[str, Any]:
    """The workers' part, then what is made of it."""
    settings, output = job.settings, job.output
    history = History(run, output / METRICS_FILE, settings.batch_size)
    with ray_session(verbose), MetricsReceiver(history.hear) as mailbox:
        fit(job, mailbox)
    best_step = _save_best(job, corpus, history, baseline)
    result = _result(job, history, best_step, run.id, baseline)
    steps = _profile_table(job.profile) if job.profile else []
    training_page.write_training_report(
        output / "report.html", result, history.rows, settings, steps
    )
    run.metrics({"best_step": result["best_step"], "best_dev_spearman": result["dev_spearman"]})
    profile = [profiling.FOLDER] if job.profile else []
    for name in ("report.html", "model", SETTINGS_FILE, *profile):
        run.artifact(output / name)
    write_json(output / RESULT_FILE, result)
    return result


def check_inputs(settings: TrainSettings, corpus: Corpus) -> list[str]:
    """What the user should know of this run; UserError for all that can be wrong, before a worker
    starts."""
    backbone = load_backbone(settings.encoder, attention=settings.attention)
    corpus.check_tokenizer(settings.encoder, backbone.tokenizer.hash, settings.max_length)
    corpus.require(settings.method.needs, settings.method.name)
    if settings.batch_size > len(corpus):
        raise UserError(
            f"batch_size is {settings.batch_size} and the corpus {str(corpus.path)!r} has "
            f"{len(corpus)} sentences: give a smaller batch_size or more sentences"
        )
    check_cores(settings.workers, settings.cpus_per_worker or 1)
    steps = total_steps(len(corpus), settings)
    if settings.optimizer.warmup_steps >= steps:
        raise UserError(
            f"optimizer.warmup_steps is {settings.optimizer.warmup_steps} and the run has {steps} "
            "steps: warm up for fewer"
        )
    method = build_method(backbone, settings)
    _check_room(method, settings)
    return [*cut_notes(settings, corpus), *method.notes(corpus.columns)]


def _check_room(method: Method, settings: TrainSettings) -> None:
    """UserError when a sentence of max_length tokens does not fit into the encoder."""
    for role in settings.method.template_roles:
        if getattr(settings.templates, role) is None:
            continue
        bound = BoundTemplate.bind(method.template(role), method.backbone.tokenizer.hf)
        if bound.length + settings.max_length > method.backbone.max_tokens:
            raise UserError(
                f"templates.{role} takes {bound.length} tokens and max_length is "
                f"{settings.max_length}: together they must stay within the encoder's "
                f"{method.backbone.max_tokens}; --set max_length={_room(method, bound)} or less"
            )
    plain = BoundTemplate.bind(None, method.backbone.tokenizer.hf)
    if settings.max_length > _room(method, plain):
        raise UserError(
            f"max_length is {settings.max_length} and the encoder takes {_room(method, plain)} "
            f"tokens beside {plain.length} special ones: --set max_length to that or less"
        )


def _room(method: Method, bound: BoundTemplate) -> int:
    """Return the most tokens of a sentence that fit into the encoder with a template."""
    return method.backbone.max_tokens - bound.length


def _profile_table(folder: Path) -> list[profiling.Row]:
    """The table beside the steps that the workers left; the steps."""
    rows = profiling.read_steps(folder / profiling.STEPS_FILE)
    write_table(folder, rows)
    return rows


def _save_best(job: Job, corpus: Corpus, history: History, baseline: Baseline) -> int:
    """Save the model of the checkpoint with the best dev score; its step."""
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
    facts = training_metadata(corpus, job.dev, history, found.step, baseline)
    _save_model(job, found.load(mapped=True)["method"], output / "model", facts)
    return found.step


def _save_model(job: Job, weights: dict[str, Any], path: Path, facts: TrainingMetadata) -> None:
    settings = job.settings
    method = build_method(load_backbone(settings.encoder), settings)
    method.load_state_dict(weights)
    # A run killed between its model and its result left a model of the same weights.
    shutil.rmtree(path, ignore_errors=True)
    pooling = replace(method.pooling, settings=with_pairs(flatten(settings), job.dev))
    encoder = SentenceEncoder(method.finished, pooling, method.kept_head)
    with warnings.catch_warnings(record=True) as told:
        encoder.save_pretrained(path, facts)
    for warning in told:
        say(f"warning: {warning.message}")


def _result(
    job: Job, history: History, best_step: int, run_id: str | None, baseline: Baseline
) -> dict[str, Any]:
    settings = job.settings
    return {
        "method": settings.method.name,
        "encoder": settings.encoder,
        "steps": history.last_step,
        "best_step": best_step,
        "dev": dev_name(job.dev),
        "dev_spearman": history.rows[best_step][tracking.DEV_SPEARMAN],
        "dev_spearman_before": history.rows[0][tracking.DEV_SPEARMAN],
        **baseline.entries,
        "loss": history.rows[history.last_step][tracking.LOSS],
        "sentences_per_second": round(history.rate(), 2),
        tracking.TOKENS_PER_SECOND: round(history.median(tracking.TOKENS_PER_SECOND), 1),
        tracking.FLOP_USE: round(history.median(tracking.FLOP_USE), 4),
        "workers": settings.workers,
        "seed": settings.seed,
        "mlflow_run_id": run_id,
    }
