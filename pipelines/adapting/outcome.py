"""What an adaptation came to: its result, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cotbert_core.evaluation.passages import PASSAGE_WORDS
from pipelines.adapting.choosing import MERGED, UNTOUCHED, Contender, choose
from pipelines.adapting.options import NO_DOCUMENTS, AdaptOptions
from pipelines.evaluating.differences import TOO_FEW
from pipelines.evaluating.scoring import (
    FOUND_FIRST,
    KEYWORD_WEIGHT_KEY,
    KEYWORDS,
    MRR10,
    PASSAGES,
    PASSAGES_WITH_KEYWORDS,
    WITH_KEYWORDS,
    score_of,
)
from pipelines.recording import dev_metric
from pipelines.storage.corpus import Corpus
from pipelines.training.baseline import Baseline

DOCUMENTS, SENTENCES = "documents", "sentences"
OWN_WORDS = {
    FOUND_FIRST: "found first in %",
    MRR10: "MRR@10 x 100",
    WITH_KEYWORDS: "found first in %, with keyword search",
    PASSAGES: "found first in %, by passages",
    PASSAGES_WITH_KEYWORDS: "found first in %, by passages with keyword search",
}
# On 500 questions of TREC SimCSE was better by 6.3 points of 56.2 by the type of the question, and
# not by halves.
_OTHER_LABELS = (
    "Halves tell what a sentence is about. If yours have labels of another kind, such as types of "
    "questions, a candidate may be better by them: cotbert evaluate --labelled compares them."
)
_OF_DOCUMENTS = (WITH_KEYWORDS, PASSAGES, PASSAGES_WITH_KEYWORDS)
# What is searched with what.
_FINDS = {
    DOCUMENTS: "held-out sentences find their document",
    SENTENCES: "halves of held-out sentences find their other half",
}


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
        "keyword_search": score_of(models[UNTOUCHED][KEYWORDS]),
        "dev": {one.name: one.score for one in contenders},
        "trials": list(trials),
        "models": dict(models),
        "differences": dict(differences),
        "changed_queries": changed_queries.get(chosen.name),
    }


def _own_first(entries: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the encoder's entries that are scores, the user's own documents before general
    text."""
    scores = [(name, entry) for name, entry in entries.items() if isinstance(entry, Mapping)]
    encoders = [(name, entry) for name, entry in scores if name != KEYWORDS]
    return sorted(encoders, key=lambda item: item[0] not in OWN_WORDS)


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return what was gained, in words: on the user's documents, beside keyword search, by passages
    if they are long, and on general text."""
    others = [*_keyword_sentence(result), *_passage_sentence(result)]
    if may_be_better_by_labels(result):
        others.append(_OTHER_LABELS)
    if result["winner"] != result["chosen"]:
        return [_unconfirmed(result), *others]
    if result["chosen"] == UNTOUCHED:
        return [_nothing_better(result), *others]
    general = [(name, row) for name, row in result["table"].items() if name not in OWN_WORDS]
    own = _own_sentence(result, result["table"][FOUND_FIRST])
    said = [_general_sentence(name, row) for name, row in general]
    return [own, *others, *said, *_average_sentences(result, dict(general))]


def own_text(result: Mapping[str, Any]) -> str:
    """Return what the user's text consists of: DOCUMENTS or SENTENCES."""
    return SENTENCES if result["documents"]["by"] == NO_DOCUMENTS else DOCUMENTS


def may_be_better_by_labels(result: Mapping[str, Any]) -> bool:
    """Return whether the halves of single sentences, which know no other label, rejected all."""
    return result["chosen"] == UNTOUCHED and own_text(result) == SENTENCES


def _nothing_better(result: Mapping[str, Any]) -> str:
    own, dev = own_text(result), result["dev"]
    best = max(score for name, score in dev.items() if name != UNTOUCHED)
    return (
        f"No candidate finds your {own} better than the untouched {result['encoder']} "
        f"({result['table'][FOUND_FIRST]['before']:.1f} % of {_FINDS[own]} first), so model/ is "
        f"the untouched encoder. On the dev queries it reached {dev[UNTOUCHED]:.1f}, the best "
        f"other one {best:.1f}. Try more {own}, or more --steps."
    )


def _unconfirmed(result: Mapping[str, Any]) -> str:
    winner, first = result["winner"], result["models"][UNTOUCHED]
    own, gap = result["models"][winner][FOUND_FIRST], result["differences"][winner][FOUND_FIRST]
    dev = result["dev"]
    return (
        f"{winner} was the best by the dev queries ({dev[winner]:.1f} % found first, "
        f"{dev[UNTOUCHED]:.1f} by the untouched encoder), but the {own['queries']:,} test queries, "
        f"which can only confirm it, do not: {score_of(own):.1f} %, "
        f"{score_of(first[FOUND_FIRST]):.1f} by the untouched {result['encoder']}: "
        f"{_gap(gap, 1)}. So model/ is the untouched encoder. Try more {own_text(result)}, which "
        "make surer scores, or more --steps."
    )


def _own_sentence(result: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    return (
        f"{own['after']:.1f} % of {_FINDS[own_text(result)]} first, {own['before']:.1f} % by the "
        f"untouched encoder ({result['baseline']}): {_gap(own, 1)}."
    )


def _keyword_sentence(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence on what no encoder is needed for, what it adds to this one, and what is
    gained then; none without documents."""
    if WITH_KEYWORDS not in result["table"]:
        return []
    words, alone = result["keyword_search"], result["table"][FOUND_FIRST]["after"]
    both = result["table"][WITH_KEYWORDS]
    more = ", more than the encoder does" if words > alone else ""
    gained = ""
    if result["chosen"] != UNTOUCHED:
        gained = f", to the untouched one's {both['before']:.1f} %: {_gap(both, 1)}"
    return [
        f"Keyword search (BM25) finds {words:.1f} % without an encoder{more}. Added to the "
        f"encoder's cosines, as cotbert search --keywords does, it finds {both['after']:.1f} "
        f"%{gained}."
    ]


def keyword_weights(result: Mapping[str, Any]) -> list[float]:
    """Return the weights of keyword search that the dev queries chose for the encoder that was
    handed back: by one vector, and if the documents are long, by passages; none without documents.
    """
    if WITH_KEYWORDS not in result["table"]:
        return []
    scores = result["models"][result["chosen"]]
    found = [scores[name] for name in (WITH_KEYWORDS, PASSAGES_WITH_KEYWORDS) if name in scores]
    return [one[KEYWORD_WEIGHT_KEY] for one in found]


def _passage_sentence(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the search by passages; none if the documents are not long."""
    if PASSAGES not in result["table"]:
        return []
    alone, both = result["table"][PASSAGES], result["table"][PASSAGES_WITH_KEYWORDS]
    gained = ""
    if result["chosen"] != UNTOUCHED:
        gained = f", the untouched one {alone['before']:.1f} %: {_gap(alone, 1)}"
    return [
        "Your documents are long. With a vector for each passage too (cotbert embed --passages "
        f"{PASSAGE_WORDS}), the encoder finds {alone['after']:.1f} %{gained}. With keyword search "
        f"added, it finds {both['after']:.1f} %."
    ]


def _general_sentence(name: str, row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return f"General text ({name}): {row['before']:.2f} before, {row['after']:.2f} after."
    return (
        f"General text ({name}): Spearman {row['before']:.2f} before, {row['after']:.2f} after: "
        f"{_gap(row, 2)}."
    )


def _average_sentences(
    result: Mapping[str, Any], general: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the scores of the average with the untouched encoder, if the chosen one has lost
    general text beyond chance."""
    lost = [name for name, row in general.items() if (row.get("high") or 0.0) < 0]
    if not lost or result["chosen"] == MERGED:
        return []
    average = result["models"][MERGED]
    kept = ", ".join(f"{score_of(average[name]):.2f} on {name}" for name in lost)
    return [
        f"The average of its weights and the untouched ones, merged/, has {kept}, and finds "
        f"{score_of(average[FOUND_FIRST]):.1f} % first."
    ]


def _gap(row: Mapping[str, Any], digits: int) -> str:
    """Return a difference with its interval, and whether it may be chance."""
    if row["low"] is None:
        return f"{row['difference']:+.{digits}f} (of {TOO_FEW} for an interval): this may be chance"
    gap, low, high = (f"{row[key]:+.{digits}f}" for key in ("difference", "low", "high"))
    chance = ": this may be chance" if row["low"] <= 0 <= row["high"] else ""
    return f"{gap} (95 % interval {low} to {high}){chance}"


def score_words(name: str, own: str = DOCUMENTS) -> str:
    """Return what a table calls the score of an evaluation's entry. own: DOCUMENTS or SENTENCES."""
    if name in OWN_WORDS:
        return f"own {own}, {OWN_WORDS[name]}"
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
TRIALS_HEADER = ("candidate", "dev queries found first, %", "best step", "steps", "status")


def trial_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of candidates, the best first, after the untouched encoder."""

    def order(row: Mapping[str, Any]) -> float:
        return -(row[dev_metric.FOUND_FIRST.name] or 0.0)

    rows: list[tuple[str, ...]] = [(UNTOUCHED, _number(result["dev"][UNTOUCHED]), "", "", "")]
    for row in sorted(result["trials"], key=order):
        cells = (row[dev_metric.FOUND_FIRST.name], row["best_step"], row["steps"])
        rows.append((row["name"], *map(_number, cells), row["status"]))
    for name, score in result["dev"].items():
        if name not in (UNTOUCHED, *(row["name"] for row in result["trials"])):
            rows.append((name, _number(score), "", "", "averaged with the untouched encoder"))
    return rows


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
