"""Train with several seeds, each a separate training run in seed-N/; finished seeds are kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import short_name
from cotbert_core.files import read_json
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.recording import tracking
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import ENCODER_DIGEST, RESULT_FILE, check_output, open_output
from pipelines.storage.resumable_output import locked_output
from pipelines.training.baseline import baselines
from pipelines.training.dev_sets import DevSets, dev_digest, dev_metric, dev_name, with_pairs
from pipelines.training.inputs import encoder_digest
from pipelines.training.metrics_log import scores_of, spread
from pipelines.training.train import train
from pipelines.training.training_run import RunOptions
from pipelines.training.worker_process import WorkerProcess, worker_process

# What a folder with the runs of several seeds is called in messages.
RUNS = "group of runs"


def run_seed(
    settings: TrainSettings,
    seed: int,
    corpus: Corpus,
    dev: DevSets,
    folder: Path,
    options: RunOptions,
    process: WorkerProcess,
) -> dict[str, Any]:
    """Return the result of the run in `folder`/seed-N, which is trained unless it is finished."""
    folder = folder / f"seed-{seed}"
    if (folder / RESULT_FILE).is_file():
        say(f"{options.name} is finished")
        return dict(read_json(folder / RESULT_FILE))
    say(options.name)
    started, settings = time.monotonic(), override(settings, {"seed": seed})
    result = train(settings, corpus, dev, folder, options, process=process)
    return result | {"seconds": round(time.monotonic() - started, 1)}


def train_seeds(
    settings: TrainSettings,
    seeds: Sequence[int],
    corpus: Corpus,
    dev: DevSets,
    output: Path,
    options: RunOptions,
) -> dict[str, Any]:
    """Train once for each seed; return the results and the spread of the dev scores.

    The inputs must already be checked.
    """
    shown = with_pairs(flatten(settings), dev)
    record = {
        "settings": shown | {"seed": list(seeds)},
        "corpus_digest": corpus.digest,
        "dev_digest": dev_digest(dev),
        ENCODER_DIGEST: encoder_digest([settings]),
    }
    recipe, encoder = options.recipe or settings.method.name, settings.encoder
    params = {**shown, "seeds": ",".join(map(str, seeds)), "recipe": recipe}
    params |= {"corpus": str(corpus.path)}
    about = f"Trains {short_name(encoder)} by {recipe} with the seeds {params['seeds']}."
    output = check_output(output, RUNS, record)
    with locked_output(output):
        open_output(output, RUNS, record)
        with (
            tracking.tracked_run("train-seeds", params, about=about, home=output) as run,
            ray_session(output),
            worker_process() as process,
        ):
            run.dataset(corpus)
            baseline = baselines(output, {encoder: settings.precision}, dev, run)[encoder]
            options = replace(options, recipe=recipe, parent=run.key, baseline=baseline)
            results = []
            for seed in seeds:
                own = replace(options, name=f"{recipe} seed {seed}")
                results.append(run_seed(settings, seed, corpus, dev, output, own, process))
            result = _result(settings, dev, seeds, results, run.id)
            run.result(result)
            result |= {"dev": dev_name(dev), **baseline.entries}
            # Not earlier: matplotlib would delay the first step.
            from pipelines.comparing.seeds_report import write_seeds_report

            shared = {name: value for name, value in shown.items() if name != "seed"}
            write_seeds_report(output / REPORT_FILE, result, shared)
            run.artifact(output / REPORT_FILE)
        run.write_result(output, result)
    return result


def _result(
    settings: TrainSettings,
    dev: DevSets,
    seeds: Sequence[int],
    results: Sequence[dict[str, Any]],
    run_id: str | None,
) -> dict[str, Any]:
    """Return the spread of the dev scores, with the result of each run."""
    name = dev_metric(dev).name
    return {
        "method": settings.method.name,
        "encoder": settings.encoder,
        "seeds": list(seeds),
        **{f"{name}_{key}": value for key, value in spread(scores_of(results)).items()},
        "runs": results,
        "mlflow_run_id": run_id,
    }
