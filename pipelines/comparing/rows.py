"""The rows of a comparison's table: trained recipes, untrained readouts, untouched encoders."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder.locations import short_name
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.files import read_json
from cotbert_core.settings import Precision
from pipelines.comparing.entries import Comparison
from pipelines.comparing.report import NOT_TRAINED
from pipelines.comparing.seeded_runs import run_seed
from pipelines.comparing.untrained import untrained_readout
from pipelines.evaluating.evaluate import evaluate
from pipelines.evaluating.evaluation_tasks import Tasks
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.scoring import AVERAGE, score_of
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus
from pipelines.training.baseline import Baseline
from pipelines.training.baseline_sentence import baseline_sentence
from pipelines.training.dev_sets import dev_metric, dev_name, score_dev
from pipelines.training.metrics_log import scores_of, spread
from pipelines.training.training_run import RunOptions
from pipelines.training.worker_process import WorkerProcess

TEST_FILE = "test.json"


def trained_row(
    name: str,
    comparison: Comparison,
    corpus: Corpus,
    folder: Path,
    options: RunOptions,
    process: WorkerProcess,
) -> dict[str, Any]:
    """Return the row of a recipe, trained with every seed in `folder`."""
    settings, dev = comparison.trained[name], comparison.dev
    results, tests, seconds = [], [], []
    for seed in comparison.seeds:
        called = f"{name} seed {seed}"
        own = replace(options, name=called, recipe=comparison.recipe(name))
        result = run_seed(settings, seed, corpus, dev, folder, own, process)
        results.append(result)
        if comparison.tasks is not None:
            run, parent = folder / f"seed-{seed}", options.parent
            tests.append(_test(run, comparison.tasks, settings.precision, parent, called))
        sentences = settings.batch_size * result["steps"]
        seconds.append(sentences / result["sentences_per_second"])
    before = float(np.mean([r[dev_metric(dev).before] for r in results]))
    return _row(name, settings.method.name, before, scores_of(results), tests, seconds)


def untrained_row(name: str, comparison: Comparison, corpus: Corpus) -> dict[str, Any]:
    """Return the row of a readout of the untrained encoder."""
    say(name)
    started = time.monotonic()
    encode = untrained_readout(name, comparison.settings, corpus)
    seconds = time.monotonic() - started
    mean = score_dev(EncodeFunctions(encode), comparison.dev)[dev_metric(comparison.dev).name]
    tests = [score_of(comparison.tasks.scores(encode)[AVERAGE])] if comparison.tasks else []
    return _row(name, NOT_TRAINED, mean, [mean], tests, [seconds])


def untouched_rows(
    found: Mapping[str, Baseline], encoders: Mapping[str, Precision], tasks: Tasks | None
) -> list[dict[str, Any]]:
    """Return a row for each encoder: its baseline."""
    rows = []
    for encoder, baseline in found.items():
        of = f" {short_name(encoder)}" if len(found) > 1 else ""
        tests = []
        if tasks is not None:
            encode = baseline.open(encoder, encoders[encoder])
            tests = [score_of(tasks.scores(encode)[AVERAGE])]
        name, score = f"untouched{of}: {baseline.reading}", baseline.score
        rows.append(_row(name, NOT_TRAINED, score, [score], tests, seconds=[0.0]))
    return rows


def baseline_sentences(
    rows: Sequence[Mapping[str, Any]], comparison: Comparison, found: Mapping[str, Baseline]
) -> list[str]:
    """Return for each recipe whether it is better than its encoder was; a warning if it is not."""
    dev, metric, sentences = dev_name(comparison.dev), dev_metric(comparison.dev), []
    seeds = len(comparison.seeds)
    for row in rows:
        if (settings := comparison.entries[row["entry"]]) is not None:
            scores = {"dev": dev, metric.name: row["dev_mean"], metric.before: row["dev_before"]}
            scores |= {**found[settings.encoder].entries, "method": settings.method.name}
            mean = f" (mean of {seeds} seeds)" * (seeds > 1)
            sentences.append(baseline_sentence(scores, f"recipe {row['entry']}{mean}"))
    return sentences


def with_differences(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the mean difference of each recipe from the first, and its p-value.

    The scores of the tasks, or without tasks those on dev, are paired by seed in a t-test. The
    p-values are those of all recipes together (Benjamini and Hochberg, 1995). One seed has none,
    and neither have equal differences in all seeds: without variance p would be 0.
    """
    from scipy.stats import false_discovery_control, ttest_rel

    trained = [row for row in rows if row["method"] != NOT_TRAINED]
    key = "test" if trained[0]["test"] else "dev"
    gaps = [np.subtract(row[key], trained[0][key]) for row in trained[1:]]
    found = {r["entry"]: {"difference": g.mean()} for r, g in zip(trained[1:], gaps, strict=True)}
    tested = {r["entry"]: g for r, g in zip(trained[1:], gaps, strict=True) if np.ptp(g) > 1e-9}
    if tested:
        alone = [ttest_rel(gap, 0 * gap).pvalue for gap in tested.values()]
        for entry, p in zip(tested, false_discovery_control(alone), strict=True):
            found[entry]["p"] = p
    plain = {name: {k: float(v) for k, v in entry.items()} for name, entry in found.items()}
    return [row | plain.get(row["entry"], {}) for row in rows]


def _test(folder: Path, tasks: Tasks, precision: Precision, parent: str | None, name: str) -> float:
    """Return the average Spearman over the tasks; it is stored in a file for a resumed job."""
    path = folder / TEST_FILE
    if not path.is_file():
        names, model = ",".join(tasks.sts), str(folder / "model")
        options = EvaluateOptions(model, tasks.folder, tasks=names, precision=precision)
        evaluate(options, path, parent, name=name)
    return score_of(read_json(path)[AVERAGE])


def _row(
    name: str,
    method: str,
    before: float,
    dev: Sequence[float],
    tests: Sequence[float],
    seconds: Sequence[float],
) -> dict[str, Any]:
    return {
        "entry": name,
        "method": method,
        "dev_before": before,
        **{f"dev_{key}": value for key, value in spread(dev).items()},
        "dev": list(dev),
        "test": list(tests),
        **{f"test_{key}": value for key, value in (spread(tests) if tests else {}).items()},
        "seconds": float(np.mean(seconds)),
    }
