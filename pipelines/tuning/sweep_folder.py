"""The output folder of a sweep: which sweep it belongs to, and whether that sweep is finished."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, counted
from cotbert_core.files import read_json
from pipelines.recording import tracking
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import (
    ENCODER_DIGEST,
    RESULT_FILE,
    SETTINGS_FILE,
    earlier_run,
    open_output,
    repeats_trials,
)
from pipelines.training.dev_sets import DevSets, dev_digest, with_pairs
from pipelines.training.inputs import encoder_digest
from pipelines.tuning import state
from pipelines.tuning.options import TuneOptions
from pipelines.tuning.optuna_plan import OPTUNA
from pipelines.tuning.run_trials import end_trials
from pipelines.tuning.trial_plan import TrialPlan


def record_of(
    options: TuneOptions, plan: TrialPlan, corpus: Corpus, dev: DevSets
) -> dict[str, Any]:
    """Return everything that two runs of the same sweep have in common."""
    return {
        "space": options.space.name,
        "recipe": options.recipe,
        "stopping": vars(options.stopping) if options.stopping else None,
        "corpus_digest": corpus.digest,
        "dev_digest": dev_digest(dev),
        ENCODER_DIGEST: encoder_digest(plan.possible),
        **_named(plan.record, dev),
    }


def _named(record: dict[str, Any], dev: DevSets) -> dict[str, Any]:
    """Return a plan's record whose settings name the pairs that were used."""
    if {"dev", "encoder"} <= record.keys():
        return with_pairs(record, dev)
    return {k: _named(v, dev) if isinstance(v, dict) else v for k, v in record.items()}


def open_sweep(output: Path, record: dict[str, Any], discard: bool) -> Path:
    """Return a new folder, or that of the same sweep; another sweep is refused or discarded."""
    begun = (output / SETTINGS_FILE).is_file()
    before = read_json(output / SETTINGS_FILE) if begun else record
    if "space" not in before:
        raise UserError(f"output {str(output)!r} holds the files of another job: give a new folder")
    try:
        _check_number(output, before, record)
        return open_output(output, "sweep", record, finished=_is_finished(output))
    except UserError as error:
        if not begun or not discard:
            raise UserError(f"{error}{', or --discard to delete it' * begun}") from None
    say(f"discarding the sweep in {output}")
    if not (output / RESULT_FILE).is_file():
        end_trials(output / state.TRIALS_FOLDER)
        if run_id := earlier_run(output):
            tracking.end_run(run_id, "KILLED")
    (output / SETTINGS_FILE).unlink()  # first: what a kill leaves of the sweep is not continued
    shutil.rmtree(output)
    return open_output(output, "sweep", record)


def _check_number(output: Path, before: dict[str, Any], record: dict[str, Any]) -> None:
    """Raise UserError if a sweep of the same space was started with another search or number of
    trials: all other differences follow from that one."""
    if before["space"] != record["space"]:
        return
    then, now = (_search_and_number(one) for one in (before, record))
    if then != now:
        raise UserError(
            f"the sweep in {str(output)!r} was started with {then} and has {now} now: give the "
            "same --search, number of trials and seeds, or a new folder"
        )


def _search_and_number(record: dict[str, Any]) -> str:
    trials = record.get("trials", {})
    if isinstance(trials, int):  # those of Optuna are not planned
        return f"{counted(trials, 'trial')} by {OPTUNA}"
    return counted(len(trials), "training")  # one of each trial and seed


def _is_finished(output: Path) -> bool:
    """Return whether all trials of the sweep ended without a failure; so has any other job that
    left a result."""
    return (output / RESULT_FILE).is_file() and not repeats_trials(output)


def lacks_registration(output: Path) -> bool:
    """Return whether a finished sweep has a best model that is not registered."""
    result = read_json(output / RESULT_FILE) if _is_finished(output) else {}
    return bool(result.get("best")) and result.get("registered") is None
