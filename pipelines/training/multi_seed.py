"""The same run under several seeds, with mean, spread, least and most (PromptBERT, Table 10).

Each seed is a training run of its own in seed-N/; with --resume, finished seeds are kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.evaluation import Pairs
from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.recording import tracking
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, open_output
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import dev_digest, dev_name, with_pairs


def parse_seeds(text: str) -> tuple[int, ...]:
    """`10`: seeds 0 to 9; `3,5,8`: these. UserError for anything else."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    seeds = tuple(range(numbers[0])) if len(numbers) == 1 else numbers
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UserError(
            f"seeds is {text!r}: give how many (10), or different whole numbers with commas (3,5,8)"
        )
    return seeds


def spread(values: Sequence[float]) -> dict[str, float]:
    """mean, spread (sample standard deviation; 0 of one value), min and max."""
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


Train = Callable[..., dict[str, Any]]


def train_seeds(
    train: Train,
    settings: TrainSettings,
    seeds: Sequence[int],
    corpus: Corpus,
    dev: dict[str, Pairs],
    output: Path,
    *,
    resume: bool = False,
    verbose: bool = False,
) -> dict[str, Any]:
    """Train once for each seed; return the results' table and the spread of the dev scores.

    train: `pipelines.train.train`, whose room is above this one. The inputs must have been checked.
    """
    shown = with_pairs(flatten(settings), dev)
    record = {
        "settings": shown | {"seed": list(seeds)},
        "corpus_digest": corpus.digest,
        "dev_digest": dev_digest(dev),
    }
    output = open_output(output, "runs", record, resume)
    params = {**shown, "seeds": ",".join(map(str, seeds))}
    with (
        tracking.tracked_run("train-seeds", params, home=output, queue_folder=output) as run,
        ray_session(verbose, output),
    ):
        encoder = settings.encoder
        baseline = baselines(output, {encoder: settings.precision}, dev, run)[encoder]
        results = [
            one_seed(train, settings, seed, corpus, dev, output, resume, verbose, run.key, baseline)
            for seed in seeds
        ]
        result = {
            "method": settings.method.name,
            "encoder": settings.encoder,
            "seeds": list(seeds),
            **{f"dev_spearman_{k}": v for k, v in spread(scores_of(results)).items()},
            "runs": results,
            "mlflow_run_id": run.id,
        }
        run.result(result)
        result |= {"dev": dev_name(dev), **baseline.entries}
        write_json(output / RESULT_FILE, result)
        run.artifact(output / RESULT_FILE)
    return result


def one_seed(
    train: Train,
    settings: TrainSettings,
    seed: int,
    corpus: Corpus,
    dev: dict[str, Pairs],
    output: Path,
    resume: bool,
    verbose: bool,
    parent: str | None,
    baseline: Baseline,
) -> dict[str, Any]:
    """Return the result of a seed's run in output/seed-N; an earlier one's when it is finished."""
    folder = output / f"seed-{seed}"
    if (folder / RESULT_FILE).is_file():
        say(f"{folder.parent.name} seed {seed} is finished")
        return dict(read_json(folder / RESULT_FILE))
    say(f"{folder.parent.name} seed {seed}")
    started = time.monotonic()
    again = resume and (folder / SETTINGS_FILE).is_file()
    seeded = override(settings, {"seed": seed})
    result = train(
        seeded,
        corpus,
        dev,
        folder,
        resume=again,
        verbose=verbose,
        parent=parent,
        baseline=baseline,
    )
    return result | {"seconds": round(time.monotonic() - started, 1)}


def scores_of(results: Sequence[dict[str, Any]]) -> list[float]:
    """The dev Spearman of each run."""
    return [float(result["dev_spearman"]) for result in results]
