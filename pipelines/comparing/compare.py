"""cotbert compare: compare recipes and untrained readouts on the same encoder, corpus and steps.

Each recipe keeps its method, templates and optimizer; the settings of the budget (BUDGET) are those
of the first recipe for all, unless --set changes them. The output folder holds ENTRY/seed-N, a
training run each, report.html and result.json. The last row is the untouched encoder with its best
readout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.errors import counted
from pipelines.comparing.entries import Comparison
from pipelines.comparing.report import write_compare_report
from pipelines.comparing.rows import (
    baseline_sentences,
    trained_row,
    untouched_rows,
    untrained_row,
    with_differences,
)
from pipelines.comparing.untrained import check_untrained
from pipelines.options.shared import MODEL_ALONE, KeptFiles
from pipelines.recording import tracking
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.training_capacity import check_capacity
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import SETTINGS_FILE, check_output, open_output
from pipelines.storage.resumable_output import locked_output
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import dev_metric
from pipelines.training.inputs import check_inputs
from pipelines.training.training_run import RunOptions
from pipelines.training.worker_process import WorkerProcess, worker_process


def compare(
    comparison: Comparison,
    corpus: Corpus,
    output: Path,
    *,
    kept: KeptFiles = MODEL_ALONE,
) -> dict[str, Any]:
    """Train and score every entry with every seed; return the means and spreads."""
    _check(comparison, corpus)
    record = comparison.record(corpus)
    output = check_output(output, "comparison", record)
    with locked_output(output):
        continues = (output / SETTINGS_FILE).is_file()
        open_output(output, "comparison", record)
        return _tracked(comparison, corpus, output, kept, continues=continues)


def _tracked(
    comparison: Comparison,
    corpus: Corpus,
    output: Path,
    kept: KeptFiles,
    *,
    continues: bool,
) -> dict[str, Any]:
    """Run the comparison in its MLflow run. continues: whether an earlier process began it."""
    params = comparison.budget | {
        "entries": ",".join(comparison.entries),
        "corpus": str(corpus.path),
        "seeds": ",".join(map(str, comparison.seeds)),
    }
    if comparison.tasks:
        params["tasks"] = ",".join(comparison.tasks.sts)
    names, seeds = ", ".join(comparison.entries), len(comparison.seeds)
    about = f"Compares {names} on one budget, each training with {counted(seeds, 'seed')}."
    with (
        tracking.tracked_run("compare", params, about=about, home=output) as run,
        ray_session(output),
        worker_process() as process,
    ):
        for settings in comparison.trained.values():
            check_capacity(settings)
        run.dataset(corpus)
        encoders = {s.encoder: s.precision for s in comparison.trained.values()}
        found = baselines(output, encoders, comparison.dev, run)
        options = RunOptions(parent=run.key, kept=kept)
        rows = with_differences(_rows(comparison, corpus, output, found, run, options, process))
        result = {
            "budget": comparison.budget,
            "seeds": list(comparison.seeds),
            "tasks": list(comparison.tasks.sts) if comparison.tasks else [],
            "dev": comparison.budget["dev"],
            "metric": dev_metric(comparison.dev).name,
            "variants": comparison.variants,
            "rows": [*rows, *untouched_rows(found, encoders, comparison.tasks)],
            "verdicts": baseline_sentences(rows, comparison, found),
            "mlflow_run_id": run.id,
        }
        if continues and run.id:  # the evaluations of an earlier process do not continue theirs
            tracking.end_lost_children(run.id)
        write_compare_report(output / REPORT_FILE, result)
        run.artifact(output / REPORT_FILE)
    run.write_result(output, result)
    return result


def _check(comparison: Comparison, corpus: Corpus) -> None:
    """Raise UserError if an entry does not fit the corpus or its encoder."""
    for name, settings in comparison.entries.items():
        if settings is not None:
            check_inputs(settings, corpus)
        else:
            check_untrained(name, comparison.settings, corpus)


def _rows(
    comparison: Comparison,
    corpus: Corpus,
    output: Path,
    found: Mapping[str, Baseline],
    run: tracking.Run,
    options: RunOptions,
    process: WorkerProcess,
) -> list[dict[str, Any]]:
    """Return the row of each entry, whose dev score is logged as soon as it is known.

    found: baseline of each encoder.
    """
    rows, metric = [], dev_metric(comparison.dev).name
    for name, settings in comparison.entries.items():
        if settings is None:
            row = untrained_row(name, comparison, corpus)
        else:
            own = replace(options, baseline=found[settings.encoder])
            row = trained_row(name, comparison, corpus, output / name, own, process)
        rows.append(row)
        run.metrics({f"{metric}.{name}": row["dev_mean"]})
    return rows
