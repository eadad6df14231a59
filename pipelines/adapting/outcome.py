"""What an adaptation came to: its result, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.adapting.choosing import UNTOUCHED, Contender, choose
from pipelines.adapting.options import NO_DOCUMENTS, AdaptOptions
from pipelines.evaluating.scoring import (
    FOUND_FIRST,
    KEYWORD_WEIGHT_KEY,
    KEYWORDS,
    MRR10,
    PASSAGES,
    PASSAGES_WITH_KEYWORDS,
    SAME_LABEL,
    WITH_KEYWORDS,
    score_of,
)
from pipelines.recording.dev_metric import metric_in
from pipelines.storage.corpus import Corpus
from pipelines.training.baseline import Baseline

DOCUMENTS, SENTENCES, LABELLED = "documents", "sentences", "labelled texts"
# What the scores of the user's own texts are called, in the order of the table.
OWN_WORDS = {
    SAME_LABEL: "nearest to one of the same label, in %",
    FOUND_FIRST: "found first in %",
    MRR10: "MRR@10 x 100",
    WITH_KEYWORDS: "found first in %, with keyword search",
    PASSAGES: "found first in %, by passages",
    PASSAGES_WITH_KEYWORDS: "found first in %, by passages with keyword search",
}
_OF_DOCUMENTS = (WITH_KEYWORDS, PASSAGES, PASSAGES_WITH_KEYWORDS)


def outcome(
    options: AdaptOptions,
    corpus: Corpus,
    baseline: Baseline,
    trials: Sequence[Mapping[str, Any]],
    contenders: Sequence[Contender],
    chosen: Contender,
    models: Mapping[str, Any],
    differences: Mapping[str, Any],
    changed_queries: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the contents of result.json.

    trials: a row for each candidate. contenders: the untouched encoder first. chosen: the one that
    is handed back. models: the scores of the untouched encoder, the winner of the dev queries and
    perhaps others. differences, changed_queries: of all but the first. The table compares searches
    by keywords and passages only on documents: two halves of a sentence have few words in common.
    With labelled texts there may be no held-out documents, and then no such scores.
    """
    return {
        "encoder": options.encoder,
        "chosen": chosen.name,
        "winner": choose(contenders).name,
        "baseline": baseline.reading,
        "documents": corpus.manifest.get(
            "documents", {"by": NO_DOCUMENTS, "held_out": corpus.manifest["held_out"]}
        ),
        "sentences": len(corpus),
        "table": {
            name: {
                "before": score_of(entry),
                "after": score_of(models[chosen.name][name]),
                **differences.get(chosen.name, {}).get(name, {}),
            }
            for name, entry in _own_first(models[UNTOUCHED])
            if options.has_documents or name not in _OF_DOCUMENTS
        },
        "keyword_search": score_of(words) if (words := models[UNTOUCHED].get(KEYWORDS)) else None,
        "dev": {one.name: one.score for one in contenders},
        "trials": list(trials),
        "models": dict(models),
        "differences": dict(differences),
        "changed_queries": changed_queries.get(chosen.name),
    }


def _own_first(entries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the encoder's entries that are scores: the user's labels and documents before general
    text."""
    scores = [(name, entry) for name, entry in entries.items() if isinstance(entry, Mapping)]
    encoders = [(name, entry) for name, entry in scores if name != KEYWORDS]
    order = {name: place for place, name in enumerate(OWN_WORDS)}
    return sorted(encoders, key=lambda item: order.get(item[0], len(order)))


def own_text(result: Mapping[str, Any]) -> str:
    """Return what the user's text consists of: DOCUMENTS or SENTENCES."""
    return SENTENCES if result["documents"]["by"] == NO_DOCUMENTS else DOCUMENTS


def chosen_by(result: Mapping[str, Any]) -> str:
    """Return the name of the score that chose the encoder: SAME_LABEL or FOUND_FIRST."""
    return SAME_LABEL if SAME_LABEL in result["table"] else FOUND_FIRST


def keyword_weights(result: Mapping[str, Any]) -> list[float]:
    """Return the weights of keyword search that the dev queries chose for the encoder that was
    handed back: by one vector, and if the documents are long, by passages; none without documents.
    """
    if WITH_KEYWORDS not in result["table"]:
        return []
    scores = result["models"][result["chosen"]]
    found = [scores[name] for name in (WITH_KEYWORDS, PASSAGES_WITH_KEYWORDS) if name in scores]
    return [one[KEYWORD_WEIGHT_KEY] for one in found]


def score_words(name: str, own: str = DOCUMENTS) -> str:
    """Return what a table calls the score of an evaluation's entry. own: DOCUMENTS or SENTENCES."""
    if name in OWN_WORDS:
        whose = f"{LABELLED} " if name == SAME_LABEL else f"own {own}, "
        return whose + OWN_WORDS[name]
    return f"general text, {name}, Spearman x 100"


def table_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of results: score, before, after, difference, 95 % interval."""
    rows: list[tuple[str, ...]] = []
    for name, row in result["table"].items():
        gap, low, high = (row.get(key) for key in ("difference", "low", "high"))
        rows.append(
            (
                score_words(name, own_text(result)),
                f"{row['before']:.2f}",
                f"{row['after']:.2f}",
                "" if gap is None else f"{gap:+.2f}",
                "" if low is None or high is None else f"{low:+.2f} to {high:+.2f}",
            )
        )
    return rows


TABLE_HEADER = ("score", "before", "after", "difference", "95 % interval")


def trials_header(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the header of the table of candidates."""
    words = {FOUND_FIRST: "dev queries found first, %", SAME_LABEL: "dev texts by labels, %"}
    return ("candidate", words[chosen_by(result)], "best step", "steps", "status")


def trial_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of candidates, the best first, after the untouched encoder."""

    def order(row: Mapping[str, Any]) -> float:
        return -(row[metric_in(row).name] or 0.0)

    rows: list[tuple[str, ...]] = [(UNTOUCHED, _number(result["dev"][UNTOUCHED]), "", "", "")]
    for row in sorted(result["trials"], key=order):
        cells = (row[metric_in(row).name], row["best_step"], row["steps"])
        rows.append((row["name"], *map(_number, cells), row["status"]))
    for name, score in result["dev"].items():
        if name not in (UNTOUCHED, *(row["name"] for row in result["trials"])):
            rows.append((name, _number(score), "", "", "averaged"))
    return rows


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
