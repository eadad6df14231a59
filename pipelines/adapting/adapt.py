"""cotbert adapt: from documents to the encoder that knows them best, with the proof.

The documents are prepared, and some of them are held out. Candidates are trained by Ray Tune; the
one that finds the held-out documents best is averaged with the untouched encoder, and the better of
the two becomes model/. Queries that can only confirm it then measure what was gained. If nothing
beats the untouched encoder, or these queries do not confirm it, model/ is the untouched encoder.
With --labelled, half of the user's labels choose instead, and the other half confirms.

The output folder holds settings.json (written first), inputs.json, corpus/, baseline.json, with
--pretrain pretrain/, trials/NAME/ (each a complete output of `cotbert train`), merged/,
evaluation.json, model/, report.html and, written last, result.json. The same command continues a
job that was killed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import absolute_name
from cotbert_core.encoder.pooling_files import load_pooling_config
from cotbert_core.errors import ReadError, UserError
from cotbert_core.files import read_json
from cotbert_core.settings import TrainSettings, override
from pipelines.adapting.candidates import candidates, check_every, supported
from pipelines.adapting.choosing import (
    MERGED,
    UNTOUCHED,
    Contender,
    choose,
    confirm,
    plain_readout,
    scored,
    untouched,
)
from pipelines.adapting.copy_notes import copy_notes
from pipelines.adapting.final_model import (
    EVALUATION_FILE,
    SAVED_READOUTS,
    complete_model,
    evaluate_models,
    graded_file,
    require_general_text,
    save_model,
)
from pipelines.adapting.job_record import CORPUS, MODEL, about, params, record, require_same_inputs
from pipelines.adapting.labelled_halves import LabelledHalves, read_halves
from pipelines.adapting.length_notes import length_notes, require_positions, require_sentences
from pipelines.adapting.merging import average
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.outcome import outcome
from pipelines.adapting.report import write_adapt_report
from pipelines.adapting.trials import train_candidates
from pipelines.evaluating.scoring import FOUND_FIRST, SAME_LABEL
from pipelines.options.shared import MODEL_ALONE, KeptFiles
from pipelines.preparing.prepare import check_input, prepare
from pipelines.preparing.report import row_numbers
from pipelines.pretraining.pretrain import pretrain
from pipelines.recipes import RECIPES
from pipelines.recording import tracking
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.training_capacity import check_capacity, check_concurrent
from pipelines.storage.corpus import Corpus
from pipelines.storage.held_out_file import has_held_out, read_held_out
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, check_output, open_output
from pipelines.storage.resumable_output import locked_output, remove_leftover
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import DevSets, dev_metric, graded_sets, with_labelled, with_own
from pipelines.training.training_run import RunOptions
from pipelines.tuning import state
from pipelines.tuning.result import without_result

PRETRAIN = "pretrain"
# Paths that exist as soon as a training has begun.
TRAINED = (f"{PRETRAIN}/{SETTINGS_FILE}", state.TRIALS_FOLDER)


@dataclass(frozen=True)
class _Job:
    """What is asked of `adapt`. labelled: the halves of the labelled texts, None without them."""

    options: AdaptOptions
    output: Path
    labelled: LabelledHalves | None
    also: Sequence[str]
    kept: KeptFiles


def adapt(
    options: AdaptOptions,
    output: Path,
    *,
    parent: str | None = None,
    also: Sequence[str] = (),
    kept: KeptFiles = MODEL_ALONE,
) -> dict[str, Any]:
    """Adapt an encoder to documents and return the result; UserError before anything is trained.

    parent: the key of an MLflow run that this one belongs to. also: candidates whose models are
    scored beside the chosen one. kept: what stays of a training that has ended.
    """
    workers = {"workers": options.workers, "batch_size": options.batch_size}
    check_capacity(settings := override(TrainSettings(), workers))
    check_concurrent(settings, options.max_concurrent)
    require_positions(options.encoder)
    stamps = dict(check_input(options.prepare_options()).stamps)
    require_general_text(options)
    labelled = read_halves(options)
    if labelled is not None:
        stamps[f"{options.labelled} (labels)"] = labelled.stamp
    load_pooling_config(absolute_name(options.encoder))  # UserError for modules it does not read
    output = check_output(output, "adaptation", record(options))
    with locked_output(output):
        continues = (output / SETTINGS_FILE).is_file()
        open_output(output, "adaptation", record(options))
        require_same_inputs(output, stamps, (output / CORPUS / RESULT_FILE).is_file())
        try:
            job = _Job(options, output, labelled, also, kept)
            return _tracked(job, parent, timed=not continues)
        except ReadError:  # of a disk, perhaps for a moment: what is prepared stays
            raise
        except UserError:
            # The documents or options will not do. With settings.json the mended command would be
            # refused, and nothing was trained yet, by an earlier run either.
            if not continues and not any((output / name).exists() for name in TRAINED):
                shutil.rmtree(output, ignore_errors=True)
            raise


def _tracked(job: _Job, parent: str | None, *, timed: bool) -> dict[str, Any]:
    """Run the job in its MLflow run. timed: whether this is the whole job, whose time is known."""
    started, options = time.monotonic(), job.options
    with (
        tracking.tracked_run(
            "adapt", params(options), about=about(options), parent=parent, home=job.output
        ) as run,
        ray_session(job.output),
    ):
        result = _run(job, run)
        failed = any(row["status"] == state.FAILED for row in result.get("trials", ()))
        # The evaluations of an earlier run, and trials whose process died, do not end theirs.
        if (failed or not timed) and run.id:
            tracking.end_lost_children(run.id)
        seconds = round(time.monotonic() - started, 1) if timed else None
        result |= {"seconds": seconds, "mlflow_run_id": run.id}
        _log_result(run, result, job)
    run.write_result(job.output, result)
    return result


def _run(job: _Job, run: tracking.Run) -> dict[str, Any]:
    """Prepare, train, choose and score; write model/ and return the result."""
    options, output, labelled = job.options, job.output, job.labelled
    corpus = _prepared(job, run)
    encoder = absolute_name(options.encoder)
    # The dev queries or labels choose; the graded pairs are scored beside them.
    dev = graded_sets(TrainSettings(dev="own"), options.senteval, graded_file(options))
    dev = with_labelled(dev, labelled.dev) if labelled else with_own(dev, corpus.path)
    baseline = baselines(output, {encoder: "auto"}, dev, run, readouts=SAVED_READOUTS)[encoder]
    rows, notes = _train(job, run, corpus, dev, baseline)
    contenders = [untouched(encoder, baseline), *_trained(rows, encoder, dev, output)]
    winner = choose(contenders)
    test = labelled.test if labelled else None
    shown = _shown(job, contenders, winner)
    scores = evaluate_models(options, shown, corpus, test, output, run.key)
    chosen = confirm(winner, contenders[0], *scores[:2])
    save_model(chosen, output / MODEL)
    result = outcome(options, corpus, baseline, rows, contenders, chosen, *scores)
    result |= {"notes": notes, "rows": row_numbers(read_json(corpus.path / RESULT_FILE))}
    complete_model(output / MODEL, result)
    return result


def _prepared(job: _Job, run: tracking.Run) -> Corpus:
    """Return the corpus, which an earlier run may have prepared; UserError if it is too small."""
    folder = job.output / CORPUS
    if not (folder / RESULT_FILE).is_file():
        prepare(job.options.prepare_options(), folder, run.key)
    remove_leftover(folder)
    corpus = Corpus.open(folder)
    try:
        require_sentences(corpus, job.options)
    except UserError:
        shutil.rmtree(corpus.path)
        raise
    if has_held_out(corpus.path):
        read_held_out(corpus.path, "test")  # UserError for too few now, not after the trainings
    run.dataset(corpus)
    return corpus


def _train(
    job: _Job, run: tracking.Run, corpus: Corpus, dev: DevSets, baseline: Baseline
) -> tuple[list[dict[str, Any]], list[str]]:
    """Train the candidates; return the row of each, and notes for the user."""
    options, encoder = job.options, absolute_name(job.options.encoder)
    start = _pretrained(job, encoder, corpus, run.key)
    tried = candidates(options, start, plain_readout(baseline))
    settings, notes = supported(tried, corpus, named=bool(options.candidates))
    notes += [*length_notes(corpus, encoder, options), *copy_notes(corpus, encoder, options)]
    for note in notes:
        say(f"note: {note}")
    rows = train_candidates(
        settings,
        corpus,
        dev,
        job.output / state.TRIALS_FOLDER,
        baseline,
        parent=run.key,
        max_concurrent=options.max_concurrent,
        kept=job.kept,
    )
    return rows, notes


def _shown(job: _Job, contenders: Sequence[Contender], winner: Contender) -> list[Contender]:
    """Return the encoders to score by the test half: the untouched one, the winner, those that are
    asked for, and the average, which may forget less than the winner."""
    others = [n for n in job.also if n != winner.name and state.model_of(job.output, n).is_dir()]
    scored_too = [Contender(n, str(state.model_of(job.output, n)), 0.0) for n in others]
    averages = [one for one in contenders if one.name == MERGED and winner.name != UNTOUCHED]
    return list(dict.fromkeys([contenders[0], winner, *scored_too, *averages]))


def _pretrained(job: _Job, encoder: str, corpus: Corpus, parent: str | None) -> str:
    """Return the encoder from which candidates start: with --pretrain a masked language model."""
    options, folder = job.options, job.output / PRETRAIN
    if not options.pretrain:
        return encoder
    if not (folder / RESULT_FILE).is_file():
        budget = {"max_steps": options.pretrain, "eval_every": check_every(options.pretrain)}
        same = {"encoder": encoder, "seed": options.seed, "workers": options.workers}
        same |= {"batch_size": options.batch_size}
        recipe = "mlm-base"
        settings = override(RECIPES[recipe](), {**budget, **same})
        run_options = RunOptions(recipe=recipe, parent=parent, kept=job.kept)
        pretrain(settings, corpus, folder, run_options)
    return str(folder / MODEL)


def _trained(
    rows: Sequence[Mapping[str, Any]], encoder: str, dev: DevSets, output: Path
) -> list[Contender]:
    """Return the best candidate, and its average with the untouched encoder."""
    best = state.best_of(rows)
    if best is None:
        raise without_result(rows)
    model, merged = state.model_of(output, best["name"]), output / MERGED
    average(encoder, model, merged)
    score = float(best[dev_metric(dev).name])
    return [scored(MERGED, merged, dev), Contender(best["name"], str(model), score)]


def _log_result(run: tracking.Run, result: dict[str, Any], job: _Job) -> None:
    """Write report.html and log the result."""
    output = job.output
    write_adapt_report(output / REPORT_FILE, result, job.options)
    for name, entry in (("found_first", FOUND_FIRST), ("same_label", SAME_LABEL)):
        row = result["table"].get(entry, {})
        run.metrics({f"{name}_{k}": v for k, v in row.items() if isinstance(v, float)})
    run.tags({"chosen": result["chosen"]})
    run.tags({"model_folder": str(output / MODEL)})
    for name in (REPORT_FILE, EVALUATION_FILE, *([MODEL] if job.kept.log_model else [])):
        run.artifact(output / name)
