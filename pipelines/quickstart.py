"""cotbert quickstart: run all stages on this machine, without any download.

The stages are prepare (docstrings of installed packages), train (CoT-BERT, two CPU workers),
evaluate (graded pairs, before and after), embed (the corpus) and a report; all are tracked in
MLflow.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.evaluation.pairs import Encode, PairScores
from cotbert_core.files import write_json
from cotbert_core.saving.model_card import add_scores
from cotbert_core.saving.training_metadata import Score
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.embed import EmbedOptions, embed, read_embeddings
from pipelines.evaluate import SPLITS, CountedEncode, score_splits
from pipelines.options.jobs import QuickstartOptions
from pipelines.prepare import prepare
from pipelines.preparing.options import PrepareOptions
from pipelines.recipes import RECIPES
from pipelines.recording import tracking
from pipelines.reports.quickstart_page import QuickstartOutcome, summary, write_report
from pipelines.runtime.progress import clock, say, show
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.worker_resources import available_cores
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.train import train
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import BUILT_IN_NAME, BUILT_IN_PAIRS, dev_sets, with_pairs

QUERIES = (
    "The result has the same shape as the input.",
    "Raised when the connection to the server is lost.",
    "Compute the eigenvalues of a symmetric matrix.",
    "This feature is deprecated and will be removed.",
)
NEIGHBOURS = 3


def quickstart(
    output: Path, verbose: bool = False, options: QuickstartOptions | None = None
) -> dict[str, Any]:
    """Run the main job into `output` and return its result. options: None for the defaults."""
    options = options or QuickstartOptions()
    output = require_empty(output)
    settings = RECIPES["quickstart"]()
    changes = {"workers": min(settings.workers, available_cores()), "max_steps": options.steps}
    settings = override(settings, {k: v for k, v in changes.items() if v is not None})
    source = PrepareOptions(
        (f"docstrings:{options.packages}",),
        settings.encoder,
        settings.max_length,
        sample=options.sentences,
    )
    output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    params = with_pairs(flatten(settings), dev_sets(settings, None, None))
    with tracking.tracked_run("quickstart", params) as run, ray_session(verbose, output):
        outcome = _stages(settings, source, output, verbose, run)
        seconds = time.monotonic() - started
        result = _result(outcome, seconds, run.id)
        write_report(output, outcome, seconds)
        run.result({k: v for k, v in result.items() if k != tracking.BASELINE_SPEARMAN})
        run.artifact(output / "report.html")
        write_json(output / RESULT_FILE, result)
    show(summary(outcome))
    show(_next_commands(output, seconds))
    return result


def _stages(
    settings: TrainSettings,
    source: PrepareOptions,
    output: Path,
    verbose: bool,
    run: tracking.Run,
) -> QuickstartOutcome:
    run_id = run.id
    corpus, model, vectors = output / "corpus", output / "train" / "model", output / "embeddings"
    say("1/4 prepare: sentences from the docstrings of installed packages")
    prepared = prepare(source, corpus, verbose, run_id)
    say("2/4 train: CoT-BERT with Ray Train")
    dev = dev_sets(settings, None, None)
    baseline = baselines(output, {settings.encoder: settings.precision}, dev, run)[settings.encoder]
    trained = train(
        settings,
        Corpus.open(corpus),
        dev,
        output / "train",
        verbose=verbose,
        parent=run_id,
        baseline=baseline,
    )
    say("3/4 evaluate: graded pairs, before and after")
    before, after, untouched, rate = _evaluate(settings, model, baseline, run_id)
    found = Score(f"{BUILT_IN_NAME}, test", before["test"].spearman, after["test"].spearman)
    add_scores(model, [found])
    say("4/4 embed: every sentence of the corpus")
    embedded = embed(EmbedOptions(str(model), (str(corpus),)), vectors, verbose, run_id)
    neighbours = nearest(model, corpus, vectors)
    return QuickstartOutcome(
        settings, prepared, trained, embedded, before, after, untouched, rate, neighbours
    )


def _evaluate(
    settings: TrainSettings, model: Path, baseline: Baseline, run_id: str | None
) -> tuple[dict[str, PairScores], dict[str, PairScores], dict[str, PairScores], float]:
    """Return the scores of the [MASK] vector before and after training, those of the untouched
    encoder with its best readout, and sentences per second."""
    readings: dict[str, SentenceEncoder | Encode] = {
        "before": SentenceEncoder.from_pretrained(settings.encoder, settings.templates.anchor),
        "after": SentenceEncoder.from_pretrained(model),
        "untouched": baseline.open(settings.encoder, settings.precision),
    }
    encodes = {name: CountedEncode(encoder) for name, encoder in readings.items()}
    with tracking.tracked_run("evaluate", {"pairs": str(BUILT_IN_PAIRS)}, parent=run_id) as run:
        scores = {name: score_splits(encode, BUILT_IN_PAIRS) for name, encode in encodes.items()}
        run.metrics(
            {
                f"{split}_spearman.{name}": scores[name][split].spearman
                for name in scores
                for split in SPLITS
            }
        )
    return scores["before"], scores["after"], scores["untouched"], encodes["after"].rate


def nearest(
    model: Path, corpus: Path, embeddings: Path
) -> list[tuple[str, list[tuple[float, str]]]]:
    """Return for each query the closest sentences of the embedded corpus, with their cosines."""
    ids, vectors = read_embeddings(embeddings)
    text_of = Corpus.open(corpus).texts()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = SentenceEncoder.from_pretrained(model).encode(QUERIES, normalize=True)
    found = []
    for query, cosines in zip(QUERIES, queries @ unit.T, strict=True):
        best = [i for i in np.argsort(-cosines)[: NEIGHBOURS + 1] if text_of[int(ids[i])] != query]
        texts = [(float(cosines[i]), text_of[int(ids[i])]) for i in best[:NEIGHBOURS]]
        found.append((query, texts))
    return found


def _result(outcome: QuickstartOutcome, seconds: float, run_id: str | None) -> dict[str, Any]:
    return {
        "encoder": outcome.settings.encoder,
        "sentences": outcome.prepared["rows"],
        "dev": outcome.trained["dev"],
        "dev_spearman_before": outcome.before["dev"].spearman,
        "dev_spearman": outcome.after["dev"].spearman,
        **{key: outcome.trained[key] for key in (tracking.BASELINE, tracking.BASELINE_SPEARMAN)},
        "test_spearman_before": outcome.before["test"].spearman,
        "test_spearman": outcome.after["test"].spearman,
        "alignment_before": outcome.before["test"].alignment,
        "alignment": outcome.after["test"].alignment,
        "uniformity_before": outcome.before["test"].uniformity,
        "uniformity": outcome.after["test"].uniformity,
        "prepare_sentences_per_second": outcome.prepared["sentences_per_second"],
        "train_sentences_per_second": outcome.trained["sentences_per_second"],
        "evaluate_sentences_per_second": round(outcome.evaluated_per_second, 1),
        "embed_sentences_per_second": outcome.embedded["sentences_per_second"],
        "seconds": round(seconds, 1),
        "mlflow_run_id": run_id,
    }


def _next_commands(output: Path, seconds: float) -> str:
    shown = _short(output)
    # Without an activated environment the commands are in the folder of the interpreter.
    place = "" if shutil.which("cotbert") else f"{_short(Path(sys.executable).parent)}/"
    return (
        f"Done in {clock(seconds)}. The report is {shown}/report.html. Next:\n"
        f"  {place}mlflow ui --backend-store-uri {tracking.shown_uri()}\n"
        f"  {place}cotbert train quickstart --corpus YOUR.txt --output runs/mine\n"
        f"  {place}cotbert embed {shown}/train/model --input YOUR.txt --output runs/vectors"
    )


def _short(path: Path) -> Path:
    """Return a path relative to the current folder, if it is inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
