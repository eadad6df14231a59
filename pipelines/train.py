"""cotbert train: a recipe, a corpus and an output folder to a trained, tracked encoder.

The output folder holds settings.json (written first), checkpoints/ and metrics.jsonl while the
run goes on, then model/ (best by dev score), report.html and, last of all, result.json.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cotbert_core.backbone import from_anywhere, load_backbone
from cotbert_core.encoder import SentenceEncoder
from cotbert_core.errors import UserError
from cotbert_core.evaluation import Pairs, load_dev, read_pairs
from cotbert_core.files import read_json, write_json, write_text
from cotbert_core.reading import Reading
from cotbert_core.settings import TrainSettings, flatten, override
from cotbert_core.templates import resolve_template
from cotbert_core.training import total_steps
from cotbert_core.wrapping import BoundTemplate
from pipelines import report, tracking
from pipelines.channel import Channel
from pipelines.corpus import Corpus
from pipelines.history import History
from pipelines.outputs import RESULT_FILE, check_free
from pipelines.progress import say
from pipelines.ray_session import check_cores, cpus_per_worker, ray_session

SETTINGS_FILE = "settings.json"
RUN_FILE = "mlflow_run_id"
METRICS_FILE = "metrics.jsonl"
BUILT_IN_PAIRS = Path(__file__).parent / "data" / "pairs.tsv"


class TrainingError(RuntimeError):
    """A run that failed after it had begun: exit status 1."""


def dev_pairs(senteval: Path | None, pairs: Path | None) -> Pairs:
    """The pairs by which the best step is chosen: STS-B's dev file, a file of one's own, or the
    ones that come with this package."""
    if senteval is not None:
        return load_dev(senteval)
    return read_pairs(pairs or BUILT_IN_PAIRS, split="dev")


def train(
    settings: TrainSettings,
    corpus: Corpus,
    dev: Pairs,
    output: Path,
    *,
    resume: bool = False,
    verbose: bool = False,
    parent: str | None = None,
) -> dict[str, Any]:
    """Train and return the result; UserError before anything starts, TrainingError after."""
    settings = override(settings, {"encoder": from_anywhere(settings.encoder)})
    _check_inputs(settings, corpus)
    output = _open_output(output, settings, corpus, resume)
    params = {**flatten(settings), "corpus": str(corpus.path), "corpus_digest": corpus.digest}
    earlier = _earlier_run(output)
    with tracking.tracked_run("train", params, parent=parent, run_id=earlier) as run:
        write_text(output / RUN_FILE, run.id or "")
        history = History(run, output / METRICS_FILE, settings.batch_size)
        state = _fit(settings, corpus, dev, output, history, verbose)
        reading = Reading(
            "mask",
            resolve_template(settings.templates.anchor),
            full_stop=True,
            method=settings.method.name,
            settings=flatten(settings),
        )
        _save_model(settings, reading, state, output / "model")
        result = _result(settings, history, state["step"], run.id)
        report.write_training_report(output / "report.html", result, history.rows, settings)
        run.metrics({"best_step": result["best_step"], "best_dev_spearman": result["dev_spearman"]})
        for name in ("report.html", "model", SETTINGS_FILE):
            run.artifact(output / name)
        write_json(output / RESULT_FILE, result)
    return result


def _check_inputs(settings: TrainSettings, corpus: Corpus) -> None:
    """Everything that can be wrong is found here, before a worker starts."""
    backbone = load_backbone(settings.encoder)
    corpus.check_tokenizer(settings.encoder, backbone.tokenizer.hash, settings.max_length)
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
    for role, name in settings.templates:
        if name is None:
            continue
        bound = BoundTemplate.bind(resolve_template(name), backbone.tokenizer.hf)
        if bound.length + settings.max_length > backbone.max_tokens:
            raise UserError(
                f"templates.{role} takes {bound.length} tokens and max_length is "
                f"{settings.max_length}: together they must stay within the encoder's "
                f"{backbone.max_tokens}"
            )


def _open_output(output: Path, settings: TrainSettings, corpus: Corpus, resume: bool) -> Path:
    """A new folder with the settings in it, or with --resume the folder of the same run."""
    record: dict[str, Any] = {"settings": flatten(settings), "corpus_digest": corpus.digest}
    if not resume:
        output = check_free(output)
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / SETTINGS_FILE, record)
        return output
    output = Path(output).expanduser().absolute()
    if not (output / SETTINGS_FILE).is_file():
        raise UserError(f"output {str(output)!r} holds no run to resume: leave --resume out")
    if (output / RESULT_FILE).is_file():
        raise UserError(f"the run in {str(output)!r} is finished: give a new folder")
    earlier = read_json(output / SETTINGS_FILE)
    if earlier != record:
        changed = [k for k, v in record["settings"].items() if earlier["settings"].get(k) != v]
        raise UserError(
            f"the run in {str(output)!r} began with other settings "
            f"({', '.join(changed) or 'another corpus'}): give the same ones or a new folder"
        )
    say(f"resuming the run in {output}")
    return output


def _fit(
    settings: TrainSettings,
    corpus: Corpus,
    dev: Pairs,
    output: Path,
    history: History,
    verbose: bool,
) -> dict[str, Any]:
    """Run the workers; the state of the step with the best dev score."""
    with ray_session(verbose), Channel(history.hear) as mailbox:
        import ray.train

        from pipelines.train_worker import load_state

        job = {
            "settings": settings.model_dump(),
            "corpus": str(corpus.path),
            "dev": dev,
            "cpus": settings.cpus_per_worker or cpus_per_worker(settings.workers),
            "mailbox": mailbox,
        }
        try:
            result = _trainer(job, settings.workers, output).fit()
        except ray.train.TrainingFailedError as error:
            raise TrainingError(_cause(error)) from error
        except SystemExit:  # Ray Train's answer to Ctrl-C, after it has stopped the workers
            raise KeyboardInterrupt("the same command with --resume goes on") from None
        best = result.get_best_checkpoint(tracking.DEV_SPEARMAN, "max")
        with best.as_directory() as folder:
            return load_state(Path(folder))


def _earlier_run(output: Path) -> str | None:
    """The MLflow run that a resumed run goes on with."""
    path = output / RUN_FILE
    return (path.read_text(encoding="utf-8") or None) if path.is_file() else None


def _trainer(job: dict[str, Any], workers: int, output: Path) -> Any:
    """Ray Train's part: where workers run, and which checkpoints stay (the latest and the best)."""
    import ray.train
    from ray.train.torch import TorchTrainer

    from pipelines.train_worker import train_worker

    gpus = int(ray.cluster_resources().get("GPU", 0))
    if 0 < gpus < workers:
        say(f"warning: {workers} workers and {gpus} GPUs: training on CPU cores")
    return TorchTrainer(
        train_worker,
        train_loop_config=job,
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers,
            use_gpu=gpus >= workers,
            resources_per_worker={"CPU": job["cpus"]},
        ),
        run_config=ray.train.RunConfig(
            storage_path=str(output),
            name="checkpoints",
            checkpoint_config=ray.train.CheckpointConfig(
                num_to_keep=1,
                checkpoint_score_attribute=tracking.DEV_SPEARMAN,
                checkpoint_score_order="max",
            ),
        ),
    )


def _cause(error: Any) -> str:
    """The first worker's own words."""
    failures = getattr(error, "worker_failures", None) or {}
    for worker in sorted(failures):
        lines = str(failures[worker]).strip().splitlines()
        return f"worker {worker}: {lines[-1] if lines else failures[worker]!r}"
    return str(error).strip().splitlines()[-1]


def _save_model(
    settings: TrainSettings, reading: Reading, state: dict[str, Any], path: Path
) -> None:
    backbone = load_backbone(settings.encoder)
    weights = {
        name.removeprefix("encoder."): value
        for name, value in state["method"].items()
        if name.startswith("encoder.")
    }
    backbone.model.load_state_dict(weights)
    # A run killed between its model and its result left a model of the same weights.
    shutil.rmtree(path, ignore_errors=True)
    SentenceEncoder(backbone, reading).save_pretrained(path)


def _result(
    settings: TrainSettings, history: History, best_step: int, run_id: str | None
) -> dict[str, Any]:
    return {
        "method": settings.method.name,
        "encoder": settings.encoder,
        "steps": history.last_step,
        "best_step": best_step,
        "dev_spearman": history.rows[best_step][tracking.DEV_SPEARMAN],
        "dev_spearman_before": history.rows[0][tracking.DEV_SPEARMAN],
        "loss": history.rows[history.last_step][tracking.LOSS],
        "sentences_per_second": round(history.rate(), 2),
        "workers": settings.workers,
        "seed": settings.seed,
        "mlflow_run_id": run_id,
    }
