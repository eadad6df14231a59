"""cotbert quickstart: the whole main job on this machine, with no download.

prepare (docstrings of installed packages) -> train (CoT-BERT, two CPU workers) -> evaluate
(graded pairs, before and after) -> embed (the corpus) -> report; all of it in MLflow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder import SentenceEncoder
from cotbert_core.evaluation import read_pairs
from cotbert_core.evaluation.pairs import PairScores
from cotbert_core.settings import TrainSettings, flatten
from pipelines import plots, report, tracking
from pipelines.corpus import Corpus
from pipelines.embed import EmbedOptions, embed, read_embeddings
from pipelines.evaluate import SPLITS, CountedEncode, score_splits
from pipelines.history import read_rows
from pipelines.outputs import RESULT_FILE, check_free, write_json, write_text
from pipelines.prepare import PrepareOptions, prepare
from pipelines.progress import clock, say, table
from pipelines.ray_session import ray_session
from pipelines.recipes import RECIPES
from pipelines.train import BUILT_IN_PAIRS, METRICS_FILE, dev_pairs, train

PACKAGES = "numpy,scipy,pandas,torch,transformers,ray,mlflow,sklearn,matplotlib,sqlalchemy,pyarrow"
SENTENCES = 20_000
QUERIES = (
    "The result has the same shape as the input.",
    "Raised when the connection to the server is lost.",
    "Compute the eigenvalues of a symmetric matrix.",
    "This feature is deprecated and will be removed.",
)
NEIGHBOURS = 3


@dataclass
class Outcome:
    """What the stages gave, for the table and the report."""

    settings: TrainSettings
    prepared: dict[str, Any]
    trained: dict[str, Any]
    embedded: dict[str, Any]
    before: dict[str, PairScores]
    after: dict[str, PairScores]
    untouched: dict[str, PairScores]
    evaluated_per_second: float
    neighbours: list[tuple[str, list[tuple[float, str]]]]


def quickstart(output: Path, verbose: bool = False) -> dict[str, Any]:
    """Run the main job into `output` and return its result."""
    output = check_free(output)
    output.mkdir(parents=True, exist_ok=True)
    settings = RECIPES["quickstart"]()
    started = time.monotonic()
    with tracking.tracked_run("quickstart", flatten(settings)) as run, ray_session(verbose):
        outcome = _stages(settings, output, verbose, run.id)
        seconds = time.monotonic() - started
        result = _result(outcome, seconds, run.id)
        write_report(output, outcome, seconds)
        run.metrics({k: v for k, v in result.items() if isinstance(v, (int, float))})
        run.artifact(output / "report.html")
        write_json(output / RESULT_FILE, result)
    print(summary(outcome))
    print(_next_commands(output, seconds))
    return result


def _stages(settings: TrainSettings, output: Path, verbose: bool, run_id: str | None) -> Outcome:
    corpus, model, vectors = output / "corpus", output / "train" / "model", output / "embeddings"
    say("1/4 prepare: sentences from the docstrings of installed packages")
    source = PrepareOptions(
        (f"docstrings:{PACKAGES}",), settings.encoder, settings.max_length, sample=SENTENCES
    )
    prepared = prepare(source, corpus, verbose, run_id)
    say("2/4 train: CoT-BERT with Ray Train")
    dev = dev_pairs(None, None)
    opened = Corpus.open(corpus)
    trained = train(settings, opened, dev, output / "train", verbose=verbose, parent=run_id)
    say("3/4 evaluate: graded pairs, before and after")
    before, after, untouched, rate = _evaluate(settings, model, run_id)
    say("4/4 embed: every sentence of the corpus")
    embedded = embed(EmbedOptions(str(model), (str(corpus),)), vectors, verbose, run_id)
    neighbours = nearest(model, corpus, vectors)
    return Outcome(
        settings, prepared, trained, embedded, before, after, untouched, rate, neighbours
    )


def _evaluate(
    settings: TrainSettings, model: Path, run_id: str | None
) -> tuple[dict[str, PairScores], dict[str, PairScores], dict[str, PairScores], float]:
    """Scores of the [MASK] vector before and after, and of the untouched encoder's own pooling."""
    readings = {
        "before": SentenceEncoder.from_pretrained(settings.encoder, settings.templates.anchor),
        "after": SentenceEncoder.from_pretrained(model),
        "own pooling": SentenceEncoder.from_pretrained(settings.encoder),
    }
    encodes = {name: CountedEncode(encoder) for name, encoder in readings.items()}
    with tracking.tracked_run("evaluate", {"pairs": str(BUILT_IN_PAIRS)}, parent=run_id) as run:
        scores = {name: score_splits(encode, BUILT_IN_PAIRS) for name, encode in encodes.items()}
        run.metrics(
            {
                f"{split}_spearman.{name.replace(' ', '_')}": scores[name][split].spearman
                for name in scores
                for split in SPLITS
            }
        )
    return scores["before"], scores["after"], scores["own pooling"], encodes["after"].rate


def nearest(
    model: Path, corpus: Path, embeddings: Path
) -> list[tuple[str, list[tuple[float, str]]]]:
    """For each query the closest sentences of the embedded corpus, with their cosines."""
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


def _result(outcome: Outcome, seconds: float, run_id: str | None) -> dict[str, Any]:
    return {
        "encoder": outcome.settings.encoder,
        "sentences": outcome.prepared["rows"],
        "dev_spearman_before": outcome.before["dev"].spearman,
        "dev_spearman": outcome.after["dev"].spearman,
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


def score_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Name, before, after, and the untouched encoder's own pooling."""
    scores = (outcome.before, outcome.after, outcome.untouched)

    def row(name: str, digits: int, split: str, field: str) -> tuple[str, ...]:
        return (name, *(f"{getattr(s[split], field):.{digits}f}" for s in scores))

    return [
        row("dev Spearman x 100", 2, "dev", "spearman"),
        row("test Spearman x 100", 2, "test", "spearman"),
        row("alignment (test, lower is better)", 3, "test", "alignment"),
        row("uniformity (test, lower is better)", 3, "test", "uniformity"),
    ]


def speed_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Stage, sentences, sentences/s."""
    steps = outcome.trained["steps"] * outcome.settings.batch_size
    pairs = len(read_pairs(BUILT_IN_PAIRS))
    return [
        ("prepare", f"{outcome.prepared['rows']:,}", _rate(outcome.prepared)),
        ("train", f"{steps:,}", _rate(outcome.trained)),
        ("evaluate", f"{2 * pairs:,}", f"{outcome.evaluated_per_second:,.0f}"),
        ("embed", f"{outcome.embedded['rows']:,}", _rate(outcome.embedded)),
    ]


def _rate(result: dict[str, Any]) -> str:
    return f"{result['sentences_per_second']:,.0f}"


SCORE_HEADER = ("", "[MASK] before", "[MASK] after", "own pooling, untrained")
SPEED_HEADER = ("stage", "sentences", "sentences/s")


def summary(outcome: Outcome) -> str:
    """The tables and neighbours for the terminal."""
    lines = [table(score_rows(outcome), SCORE_HEADER), "", table(speed_rows(outcome), SPEED_HEADER)]
    for query, found in outcome.neighbours:
        lines += ["", query, *(f"  {cosine:.2f}  {text}" for cosine, text in found)]
    return "\n".join(lines) + "\n"


def _next_commands(output: Path, seconds: float) -> str:
    shown = output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output
    return (
        f"Done in {clock(seconds)}. The report is {shown}/report.html. Next:\n"
        f"  mlflow ui --backend-store-uri {tracking.tracking_uri()}\n"
        f"  cotbert train quickstart --corpus YOUR.txt --output runs/mine\n"
        f"  cotbert embed {shown}/train/model --input YOUR.txt --output runs/vectors"
    )


def write_report(output: Path, outcome: Outcome, seconds: float) -> None:
    """report.html of the whole job."""
    test = read_pairs(BUILT_IN_PAIRS, "test")
    panels = [
        (name, scores["test"].cosine, scores["test"].spearman)
        for name, scores in (("Before", outcome.before), ("After", outcome.after))
    ]
    found = [
        (query, f"{cosine:.2f}", text)
        for query, texts in outcome.neighbours
        for cosine, text in texts
    ]
    rows = read_rows(output / "train" / METRICS_FILE)
    sections = [
        ("Scores", report.table(SCORE_HEADER, score_rows(outcome))),
        ("Loss and dev score by step", plots.training_curves(rows)),
        (
            "Gold against predicted similarity, test half",
            plots.similarity_scatter(test.gold, panels),
        ),
        ("Nearest sentences", report.table(("query", "cosine", "sentence"), found, "text")),
        ("Speed", report.table(SPEED_HEADER, speed_rows(outcome))),
        ("Settings", report.settings_table(outcome.settings)),
    ]
    note = (
        f"CoT-BERT on {outcome.settings.encoder}, trained for {outcome.trained['steps']} steps on "
        f"{outcome.prepared['rows']:,} sentences of documentation; the whole job took "
        f"{clock(seconds)}. The encoder was a sentence encoder before (last column); what training "
        "changes is what its [MASK] vector knows."
    )
    write_text(output / "report.html", report.page("Quickstart", note, sections))
