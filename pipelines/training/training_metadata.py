"""The metadata of a training for its model card: data, scores, settings and versions."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cotbert_core import __version__
from cotbert_core.messages.redaction import without_credentials
from cotbert_core.saving.markdown import code, plain
from cotbert_core.saving.training_metadata import Score, TrainingMetadata
from pipelines.recording.dev_metric import FOUND_FIRST, MLM_ACCURACY, SAME_LABEL
from pipelines.recording.metric_names import DEV_MRR10, DEV_SPEARMAN
from pipelines.recording.tracking import commit
from pipelines.storage.corpus import Corpus
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import DevSets, dev_metric, dev_name
from pipelines.training.metrics_log import MetricsLog

# What a model card calls a dev score that is not a Spearman correlation.
_WORDS = {
    FOUND_FIRST: "% of the queries that find their document first",
    SAME_LABEL: "% of the texts whose nearest one has the same label",
    MLM_ACCURACY: "% of the masked tokens that are predicted",
}
PACKAGES = ("torch", "transformers", "ray")


def training_metadata(
    corpus: Corpus,
    dev: DevSets,
    log: MetricsLog,
    best_step: int,
    baseline: Baseline,
) -> TrainingMetadata:
    """Return the metadata of a run with the model of `best_step`."""
    name = f"{_chosen(dev)}, the untouched encoder by {baseline.reading}"
    untouched = Score(name, baseline.score, None)
    scores = [*_dev_scores(dev, log, best_step), untouched]
    return TrainingMetadata(_data(corpus), scores, _made(best_step, log))


def _data(corpus: Corpus) -> dict[str, Any]:
    inputs = corpus.manifest.get("source", {}).get("inputs", [])
    packed = corpus.manifest.get("packed", {})  # whose rows hold several sentences
    return {
        "source": ", ".join(code(published(name)) for name in inputs) or "not recorded",
        "sentences": f"{packed.get('sentences', len(corpus)):,}",
        "companions": plain(", ".join(corpus.columns)) or "none",
        "digest of the corpus": f"`{corpus.digest}`",
    }


def published(name: str) -> str:
    """Return an input without this machine's folders, and an address without user and options."""
    name = without_credentials(name)
    kind, colon, rest = name.partition(":")
    if not colon or "/" in kind or kind == "file":
        return Path(name.split("?")[0]).name
    return f"{kind}:{rest.split('?')[0]}"


def _dev_scores(dev: DevSets, log: MetricsLog, best_step: int) -> list[Score]:
    """Return the score that chose the step, and those of graded pairs given with other dev sets."""
    several = [(f"{name}, dev", f"{DEV_SPEARMAN}.{name}") for name in dev if len(dev) > 1]
    chosen = f"{_chosen(dev)} (the step was chosen by it)"
    first, best = log.rows.get(0, {}), log.rows[best_step]
    if dev_metric(dev) is FOUND_FIRST:
        several = [(f"{dev_name(dev)}, dev, MRR@10", DEV_MRR10), *several]
    return [
        Score(name, first.get(key), best[key])
        for name, key in [(chosen, dev_metric(dev).name), *several]
        if key in best
    ]


def _chosen(dev: DevSets) -> str:
    wording = _WORDS.get(dev_metric(dev))
    return dev_name(dev) if wording is None else f"{dev_name(dev)}, dev, {wording}"


def _made(best_step: int, log: MetricsLog) -> dict[str, str]:
    versions = [f"{package} {metadata.version(package)}" for package in PACKAGES]
    return {
        **made_now(),
        "versions": ", ".join(versions),
        "steps": f"{best_step} of {log.last_step}: the best on dev",
    }


def made_now() -> dict[str, str]:
    """Return the date and the code that make a model, for its card."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "code": f"cotbert {__version__}, commit {commit()}",
    }
