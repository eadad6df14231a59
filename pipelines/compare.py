"""cotbert compare: compare recipes and untrained readouts on the same encoder, corpus and steps.

Each recipe keeps its method, templates and optimizer; the settings of the budget (BUDGET) are those
of the first recipe for all, unless --set changes them. The output folder holds ENTRY/seed-N, a
training run each, report.html and result.json. The last row is the untouched encoder with its best
readout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError, unknown
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.files import read_json, write_json
from cotbert_core.readouts import FEATURES, Whitening, build_features
from cotbert_core.readouts.whitening import check_sample
from cotbert_core.settings import Precision, TrainSettings, flatten, override
from pipelines.evaluate import evaluate
from pipelines.evaluating.evaluation_tasks import Tasks
from pipelines.evaluating.options import EvaluateOptions
from pipelines.options.kept_files import MODEL_ALONE, KeptFiles
from pipelines.recipes import RECIPES
from pipelines.recording import tracking
from pipelines.reports import compare_page
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, open_output
from pipelines.train import train
from pipelines.training.baseline import Baseline, baseline_sentence, baselines
from pipelines.training.dev_sets import (
    DevSets,
    dev_digest,
    dev_metric,
    dev_name,
    score_dev,
    with_pairs,
)
from pipelines.training.inputs import check_inputs
from pipelines.training.multi_seed import SeededRuns, scores_of, spread
from pipelines.training.sentence_length import with_corpus_max_length

BUDGET = (
    "encoder",
    "batch_size",
    "max_length",
    "max_steps",
    "epochs",
    "eval_every",
    "dev",
    "precision",
    "workers",
    "cpus_per_worker",
)
WHITENING = "whitening"
# Number of sentences of the corpus from which the whitening baseline is fitted.
WHITENING_SAMPLE = 10_000
TEST_FILE = "test.json"


@dataclass(frozen=True)
class Comparison:
    """The entries to compare, and the data.

    entries: settings of a recipe by name, or None for an untrained readout. tasks: STS tasks of a
    SentEval folder on which every model is also scored, or None.
    """

    entries: dict[str, TrainSettings | None]
    seeds: Sequence[int]
    dev: DevSets
    tasks: Tasks | None = None

    @property
    def trained(self) -> dict[str, TrainSettings]:
        """The entries that are recipes."""
        return {name: s for name, s in self.entries.items() if s is not None}

    @property
    def settings(self) -> TrainSettings:
        """The settings of the first recipe, whose budget all have."""
        return next(iter(self.trained.values()))


def same_budget(
    names: Sequence[str], settings_of: Callable[[str], TrainSettings], changed: set[str]
) -> dict[str, TrainSettings | None]:
    """Return the entries of a comparison; UserError for an unknown name.

    settings_of: gives a recipe's settings with the user's changes. changed: names of the changed
    settings.
    """
    readouts = {*FEATURES, WHITENING}
    for name in names:
        if name not in RECIPES and name not in readouts:
            raise unknown("recipe or readout", name, {**RECIPES, **dict.fromkeys(readouts)})
    if len(set(names)) < len(names):
        raise UserError(f"the entries {', '.join(names)} name one twice: give each once")
    trained = {name: settings_of(name) for name in names if name in RECIPES}
    if not trained:
        raise UserError(f"the entries {', '.join(names)} hold no recipe: give at least one")
    first = next(iter(trained))
    budget = {key: getattr(trained[first], key) for key in BUDGET if key not in changed}
    same = {name: override(settings, budget) for name, settings in trained.items()}
    # The first recipe stays unchanged: its settings know which values the user gave.
    return {name: trained[name] if name == first else same.get(name) for name in names}


def with_common_max_length(
    entries: dict[str, TrainSettings | None], corpus: Corpus
) -> dict[str, TrainSettings | None]:
    """Return all entries with the max_length that the first recipe takes from the corpus."""
    first = next(s for s in entries.values() if s is not None)
    length = with_corpus_max_length(first, corpus).max_length
    return {name: s and override(s, {"max_length": length}) for name, s in entries.items()}


def compare(
    comparison: Comparison,
    corpus: Corpus,
    output: Path,
    *,
    resume: bool = False,
    verbose: bool = False,
    kept: KeptFiles = MODEL_ALONE,
) -> dict[str, Any]:
    """Train and score every entry with every seed; return the means and spreads."""
    for name, settings in comparison.entries.items():
        if settings is not None:
            check_inputs(settings, corpus)
        else:
            _check_readout(name, comparison.settings, corpus)
    record = _record(comparison, corpus)
    output = open_output(output, "comparison", record, resume)
    own = {key: getattr(comparison.settings, key) for key in BUDGET}
    budget = with_pairs(own, comparison.dev)
    params = {**budget, "entries": ",".join(comparison.entries), "corpus": str(corpus.path)}
    with (
        tracking.tracked_run(
            "compare", params, about=_about(comparison), home=output, queue_folder=output
        ) as run,
        ray_session(verbose, output),
    ):
        run.dataset(corpus)
        encoders = {s.encoder: s.precision for s in comparison.trained.values()}
        found = baselines(output, encoders, comparison.dev, run)
        rows, metric = [], dev_metric(comparison.dev)
        for name, settings in comparison.entries.items():
            rows.append(
                _untrained(name, comparison, corpus)
                if settings is None
                else _trained(
                    SeededRuns(
                        train=train,
                        settings=settings,
                        corpus=corpus,
                        dev=comparison.dev,
                        folder=output / name,
                        resume=resume,
                        verbose=verbose,
                        parent=run.key,
                        baseline=found[settings.encoder],
                        recipe=name,
                        kept=kept,
                    ),
                    comparison,
                )
            )
            run.metrics({f"{metric.name}.{name}": rows[-1]["dev_mean"]})
        result: dict[str, Any] = {
            "budget": budget,
            "seeds": list(comparison.seeds),
            "tasks": record["tasks"],
            "dev": budget["dev"],
            "metric": metric.name,
            "rows": [*rows, *_untouched(found, encoders, comparison.tasks)],
            "verdicts": _baseline_sentences(rows, comparison, found),
        }
        result["mlflow_run_id"] = run.id
        compare_page.write(output / REPORT_FILE, result)
        run.artifact(output / REPORT_FILE)
        write_json(output / RESULT_FILE, result)
        run.artifact(output / RESULT_FILE)
    return result


def _about(comparison: Comparison) -> str:
    """Return what a comparison does, in a sentence for MLflow."""
    names, seeds = ", ".join(comparison.entries), len(comparison.seeds)
    return f"Compares {names} on one budget, each training with {seeds} seeds."


def _record(comparison: Comparison, corpus: Corpus) -> dict[str, Any]:
    """Return what a resumed comparison must have in common with the first run."""
    return {
        "entries": {
            name: settings and with_pairs(flatten(settings), comparison.dev)
            for name, settings in comparison.entries.items()
        },
        "seeds": list(comparison.seeds),
        "corpus_digest": corpus.digest,
        "dev_digest": dev_digest(comparison.dev),
        "tasks": list(comparison.tasks.sts) if comparison.tasks else [],
    }


def _trained(runs: SeededRuns, comparison: Comparison) -> dict[str, Any]:
    """Return the row of a recipe, trained with every seed."""
    results, tests, seconds = [], [], []
    for seed in comparison.seeds:
        result = runs.run(seed)
        results.append(result)
        if comparison.tasks is not None:
            tests.append(_test(runs.folder / f"seed-{seed}", comparison.tasks, runs.parent))
        sentences = runs.settings.batch_size * result["steps"]
        seconds.append(sentences / result["sentences_per_second"])
    before = float(np.mean([r[dev_metric(comparison.dev).before] for r in results]))
    method = runs.settings.method.name
    return _row(runs.folder.name, method, before, scores_of(results), tests, seconds)


def _test(folder: Path, tasks: Tasks, parent: str | None) -> float:
    """Return the average Spearman over the tasks; it is stored in a file for a resumed job."""
    path = folder / TEST_FILE
    if not path.is_file():
        options = EvaluateOptions(str(folder / "model"), tasks.folder, tasks=",".join(tasks.sts))
        evaluate(options, path, parent)
    return float(read_json(path)["average"])


def _untrained(name: str, comparison: Comparison, corpus: Corpus) -> dict[str, Any]:
    """Return the row of a readout of the untrained encoder."""
    say(name)
    started = time.monotonic()
    encode = _readout(name, comparison.settings, corpus)
    seconds = time.monotonic() - started
    mean = score_dev(encode, comparison.dev)[dev_metric(comparison.dev).name]
    tests = [comparison.tasks.scores(encode)["average"]] if comparison.tasks else []
    return _row(name, compare_page.NOT_TRAINED, mean, [mean], tests, [seconds])


def _untouched(
    found: Mapping[str, Baseline], encoders: Mapping[str, Precision], tasks: Tasks | None
) -> list[dict[str, Any]]:
    """Return a row for each encoder: its baseline."""
    rows = []
    for encoder, baseline in found.items():
        of = f" {Path(encoder).name}" if len(found) > 1 else ""
        started = time.monotonic()
        encode = baseline.open(encoder, encoders[encoder]) if tasks else None
        tests = [tasks.scores(encode)["average"]] if tasks and encode else []
        score, seconds = baseline.score, time.monotonic() - started
        name = f"untouched{of}: {baseline.reading}"
        rows.append(_row(name, compare_page.NOT_TRAINED, score, [score], tests, [seconds]))
    return rows


def _baseline_sentences(
    rows: Sequence[Mapping[str, Any]], comparison: Comparison, found: Mapping[str, Baseline]
) -> list[str]:
    """Return for each recipe whether it is better than its encoder was; a warning if it is not."""
    dev, sentences = dev_name(comparison.dev), []
    for row in rows:
        if (settings := comparison.entries[row["entry"]]) is not None:
            scores = {"dev": dev, dev_metric(comparison.dev).name: row["dev_mean"]}
            sentences.append(
                baseline_sentence(
                    scores | found[settings.encoder].entries, f"recipe {row['entry']}"
                )
            )
    return sentences


def _check_readout(name: str, settings: TrainSettings, corpus: Corpus) -> None:
    """Raise UserError for a readout that needs another encoder or a larger corpus."""
    backbone = load_backbone(settings.encoder)
    if name == WHITENING:
        check_sample(min(len(corpus), WHITENING_SAMPLE), backbone.hidden_size)
    else:
        build_features(name, backbone)


def _readout(name: str, settings: TrainSettings, corpus: Corpus) -> Encode:
    backbone = load_backbone(settings.encoder)
    if name != WHITENING:
        return build_features(name, backbone, precision=settings.precision)
    plain = build_features("first-last", backbone, precision=settings.precision)
    texts = list(corpus.texts().values())
    rows = np.random.default_rng(0).permutation(len(texts))[:WHITENING_SAMPLE]
    whitening = Whitening.fit(plain([texts[row] for row in rows]))
    return lambda sentences: whitening.apply(plain(sentences))


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
        **{f"test_{key}": value for key, value in (spread(tests) if tests else {}).items()},
        "seconds": float(np.mean(seconds)),
    }
