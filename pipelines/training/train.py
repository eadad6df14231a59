"""cotbert train: train an encoder by a recipe on a corpus, tracked in MLflow.

The output folder holds settings.json (written first), baseline.json, checkpoints/ and metrics.jsonl
during the run, then model/ (best by dev score), report.html and, written last, result.json; with
--profile also profile/. Then the checkpoints are deleted, unless --keep-checkpoints keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import short_name
from cotbert_core.errors import UserError, counted
from cotbert_core.settings import TrainSettings, flatten
from cotbert_core.training.checkpoints import Checkpoint
from cotbert_core.training.shuffle_windows import window_rows
from pipelines.recording import tracking
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.message_queue import Message, message_queue
from pipelines.runtime.polling import polled
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.runtime.training_capacity import check_capacity
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import (
    CORES,
    ENCODER_DIGEST,
    SETTINGS_FILE,
    check_output,
    open_output,
)
from pipelines.storage.resumable_output import locked_output
from pipelines.training import profiling
from pipelines.training.baseline import baselines
from pipelines.training.dev_sets import DevSets, dev_digest, dev_metric, dev_name, with_pairs
from pipelines.training.documents import streamed_rows, training_steps
from pipelines.training.fitting import begun_process, fit
from pipelines.training.inputs import check_inputs, encoder_digest, with_absolute_encoders
from pipelines.training.metrics_follower import MetricsFollower
from pipelines.training.metrics_log import METRICS_FILE, MetricsLog, read_rows
from pipelines.training.run_result import remove_checkpoints, run_result, save_best
from pipelines.training.training_run import DEFAULT_OPTIONS, RunOptions, TrainingRun
from pipelines.training.worker_process import WorkerProcess


def train(
    settings: TrainSettings,
    corpus: Corpus,
    dev: DevSets,
    output: Path,
    options: RunOptions = DEFAULT_OPTIONS,
    *,
    on_check: Callable[[int, float], None] | None = None,
    patience: float = 0.0,
    inside: Sequence[str] = (),
    process: WorkerProcess | None = None,
) -> dict[str, Any]:
    """Train and return the result; UserError before anything starts, TrainingError afterwards.

    on_check: called with the step and the score of every dev check after the first step.
    patience: seconds to wait for another process that writes the output.
    inside: names of folders that may be in `output` before the run begins.
    process: where a run with one worker trains; None to start a process that ends with the run.
    """
    settings = with_absolute_encoders(settings)
    part_rows, notes = _check(settings, corpus, options)
    record = _record(settings, corpus, dev)
    output = check_output(output, "run", record, inside)
    training = TrainingRun(settings, corpus, dev, output, options, part_rows)
    with (
        on_all_nodes(output, (corpus.path, *settings.encoders.values())),
        locked_output(output, patience),
    ):
        check_capacity(settings)
        # Another run may have ended, or begun, while this one waited for the lock.
        open_output(output, "run", record, inside)
        _check_metrics(training)
        with (
            _tracked(training, record) as run,
            ray_session(output),
            begun_process(settings, process) as begun,
        ):
            run.dataset(corpus)
            _report_notes(notes, options, run)
            result, chosen = _run(training, run, on_check, begun)
        run.write_result(output, result)
        remove_checkpoints(training, chosen)
        return result


def _check(
    settings: TrainSettings, corpus: Corpus, options: RunOptions
) -> tuple[tuple[int, ...] | None, list[str]]:
    """Check the inputs; return the rows of each part of a corpus that is streamed, and notes."""
    part_rows, notes = None, check_inputs(settings, corpus)
    if (together := window_rows(settings, len(corpus))) is not None:
        part_rows = streamed_rows(settings, corpus)
        notes.append(f"the corpus is streamed: about {together:,} rows are shuffled together")
    if options.profile:
        profiling.check_steps(training_steps(settings, corpus))
    return part_rows, notes


def _record(settings: TrainSettings, corpus: Corpus, dev: DevSets) -> dict[str, Any]:
    """Return what a continued run must have in common with the first."""
    return {
        "settings": with_pairs(flatten(settings), dev),
        "corpus_digest": corpus.digest,
        "dev_digest": dev_digest(dev),
        ENCODER_DIGEST: encoder_digest([settings]),
    }


def _tracked(
    training: TrainingRun, record: Mapping[str, Any]
) -> AbstractContextManager[tracking.Run]:
    """Return the MLflow run, which has the settings as params. record: from `_record`."""
    settings, corpus, output = training.settings, training.corpus, training.output
    options, encoder = training.options, short_name(settings.encoder)
    called = options.recipe or settings.method.name
    digests = {key: value for key, value in record.items() if key != "settings"}
    params = {**record["settings"], "corpus": str(corpus.path), **digests}
    del params[CORES]  # it may change when the run continues, which MLflow refuses
    about = (
        f"Trains {encoder} by {settings.method.name} on the {counted(len(corpus), 'row')} of "
        f"{corpus.path}, {counted(training_steps(settings, corpus), 'step')} of "
        f"{settings.batch_size}. The model is that of the step with the best dev score "
        f"on {dev_name(training.dev)}."
    )
    return tracking.tracked_run(
        "pretrain" if settings.method.name == "mlm" else "train",
        params | ({"recipe": options.recipe} if options.recipe else {}),
        name=options.name or tracking.run_name(called, encoder, output),
        about=about,
        parent=options.parent,
        home=output,
    )


def _report_notes(notes: Sequence[str], options: RunOptions, run: tracking.Run) -> None:
    """Print the notes about a run's inputs, and set them as a tag beside the run's others."""
    for note in notes:
        say(f"note: {note}")
    run.tags({**options.tags, **({"notes": "; ".join(notes)} if notes else {})})


def _check_metrics(training: TrainingRun) -> None:
    """UserError when a continued run has checkpoints and the numbers of their steps are gone."""
    begun = any(training.checkpoints.glob("step-????????"))
    if begun and not training.metrics_file.is_file():
        raise UserError(
            f"output {str(training.output)!r} holds checkpoints and no {METRICS_FILE} with the "
            "numbers of their steps: put the file back, or give a new folder"
        )


def _run(
    training: TrainingRun,
    run: tracking.Run,
    on_check: Callable[[int, float], None] | None,
    process: WorkerProcess,
) -> tuple[dict[str, Any], Checkpoint]:
    """Run the workers, save the best model and write the report; return the result, and the
    checkpoint of the model."""
    settings, output, encoder = training.settings, training.output, training.settings.encoder
    own, known = {encoder: settings.precision}, {encoder: training.options.baseline}
    baseline = baselines(output, own, training.dev, run, known)[encoder]
    steps = training_steps(settings, training.corpus)
    unit = "rows" if settings.method.name == "mlm" else "sentences"
    follower = MetricsFollower(run, output, settings.batch_size, steps, on_check, unit)
    say(f"starting {counted(settings.workers, 'worker')}")
    with polled(follower.poll), message_queue(_say_warnings) as messages:
        fit(training, messages, process)
    follower.close()
    log = MetricsLog(read_rows(training.metrics_file), settings.batch_size)
    # Not earlier: matplotlib would delay the first step by 0.5 s.
    from pipelines.training.report import write_training_report

    chosen = save_best(training, log, baseline)
    result = run_result(training, log, chosen, run.id, baseline)
    write_training_report(output / REPORT_FILE, result, log.rows, settings)
    _track_result(training, result, run)
    return result, chosen


def _track_result(training: TrainingRun, result: Mapping[str, Any], run: tracking.Run) -> None:
    """Log the best step, its model and the files of the run."""
    settings, output = training.settings, training.output
    metric, step = dev_metric(training.dev).name, result["best_step"]
    run.metrics({"best_step": step, f"best_{metric}": result[metric]})
    run.tags({"model_folder": str(output / "model")})
    made_by = {"method": settings.method.name, "encoder": settings.encoder}
    run.model(output / "model", made_by, {metric: result[metric]}, step)
    others = [profiling.FOLDER] if training.profile and training.profile.is_dir() else []
    others += ["model"] if training.options.kept.log_model else []
    for name in (REPORT_FILE, SETTINGS_FILE, *others):
        run.artifact(output / name)


def _say_warnings(messages: Sequence[Message]) -> None:
    for message in messages:
        say(f"warning: {message['warning']}")
