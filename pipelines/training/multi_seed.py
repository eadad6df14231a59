"""Train with several seeds and report mean, standard deviation, min and max (PromptBERT, Table 10).

Each seed is a separate training run in seed-N/; with --resume, finished seeds are kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.options.kept_files import MODEL_ALONE, KeptFiles
from pipelines.recording import tracking
from pipelines.recording.dev_metric import metric_in
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, open_output
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import DevSets, dev_digest, dev_metric, dev_name, with_pairs
from pipelines.training.worker_process import WorkerProcess, worker_process


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, spread (sample standard deviation, 0 for one value), min and max."""
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


@dataclass(frozen=True, kw_only=True)
class SeededRuns:
    """The training runs of a recipe with several seeds, each in folder/seed-N.

    train: `pipelines.train.train`, which this module may not import. parent: key of the parent
    MLflow run. baseline: of the settings' encoder on these dev sets. process: for runs with one
    worker.
    """

    train: Callable[..., dict[str, Any]]
    settings: TrainSettings
    corpus: Corpus
    dev: DevSets
    folder: Path
    resume: bool
    verbose: bool
    parent: str | None
    baseline: Baseline
    recipe: str
    kept: KeptFiles = MODEL_ALONE
    process: WorkerProcess | None = None

    def run(self, seed: int) -> dict[str, Any]:
        """Return the result of a seed's run, which is trained unless it is finished."""
        folder, name = self.folder / f"seed-{seed}", f"{self.recipe} seed {seed}"
        if (folder / RESULT_FILE).is_file():
            say(f"{name} is finished")
            return dict(read_json(folder / RESULT_FILE))
        say(name)
        started = time.monotonic()
        result = self.train(
            override(self.settings, {"seed": seed}),
            self.corpus,
            self.dev,
            folder,
            resume=self.resume and (folder / SETTINGS_FILE).is_file(),
            verbose=self.verbose,
            parent=self.parent,
            name=name,
            recipe=self.recipe,
            baseline=self.baseline,
            kept=self.kept,
            process=self.process,
        )
        return result | {"seconds": round(time.monotonic() - started, 1)}


def train_seeds(
    train: Callable[..., dict[str, Any]],
    settings: TrainSettings,
    seeds: Sequence[int],
    corpus: Corpus,
    dev: DevSets,
    output: Path,
    *,
    recipe: str = "",
    resume: bool = False,
    verbose: bool = False,
    kept: KeptFiles = MODEL_ALONE,
) -> dict[str, Any]:
    """Train once for each seed; return the results and the spread of the dev scores.

    train: `pipelines.train.train`, which this module may not import. The inputs must already be
    checked.
    """
    shown = with_pairs(flatten(settings), dev)
    record = {
        "settings": shown | {"seed": list(seeds)},
        "corpus_digest": corpus.digest,
        "dev_digest": dev_digest(dev),
    }
    output = open_output(output, "runs", record, resume)
    recipe = recipe or settings.method.name
    params = {**shown, "seeds": ",".join(map(str, seeds)), "recipe": recipe}
    params |= {"corpus": str(corpus.path)}
    about = f"Trains {Path(settings.encoder).name} by {recipe} with the seeds {params['seeds']}."
    with (
        tracking.tracked_run(
            "train-seeds", params, about=about, home=output, queue_folder=output
        ) as run,
        ray_session(verbose, output),
        worker_process() as process,
    ):
        run.dataset(corpus)
        encoder = settings.encoder
        baseline = baselines(output, {encoder: settings.precision}, dev, run)[encoder]
        runs = SeededRuns(
            train=train,
            settings=settings,
            corpus=corpus,
            dev=dev,
            folder=output,
            resume=resume,
            verbose=verbose,
            parent=run.key,
            baseline=baseline,
            recipe=recipe,
            kept=kept,
            process=process,
        )
        results = [runs.run(seed) for seed in seeds]
        result = _result(runs, seeds, results, run.id)
        run.result(result)
        result |= {"dev": dev_name(dev), **baseline.entries}
        write_json(output / RESULT_FILE, result)
        run.artifact(output / RESULT_FILE)
    return result


def _result(
    runs: SeededRuns, seeds: Sequence[int], results: Sequence[dict[str, Any]], run_id: str | None
) -> dict[str, Any]:
    """Return the spread of the dev scores, with the result of each run."""
    name = dev_metric(runs.dev).name
    return {
        "method": runs.settings.method.name,
        "encoder": runs.settings.encoder,
        "seeds": list(seeds),
        **{f"{name}_{key}": value for key, value in spread(scores_of(results)).items()},
        "runs": results,
        "mlflow_run_id": run_id,
    }


def scores_of(results: Sequence[dict[str, Any]]) -> list[float]:
    """Return the dev score of each run."""
    return [float(result[metric_in(result).name]) for result in results]
