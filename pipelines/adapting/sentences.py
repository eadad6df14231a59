"""What an adaptation came to, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotbert_core.evaluation.passages import PASSAGE_WORDS
from pipelines.adapting.choosing import MERGED, UNTOUCHED
from pipelines.adapting.outcome import (
    DOCUMENTS,
    LABELLED,
    OWN_WORDS,
    SENTENCES,
    chosen_by,
    own_text,
)
from pipelines.evaluating.differences import TOO_FEW
from pipelines.evaluating.scoring import (
    FOUND_FIRST,
    PASSAGES,
    PASSAGES_WITH_KEYWORDS,
    SAME_LABEL,
    WITH_KEYWORDS,
    score_of,
)

# By halves, 5,452 questions of TREC got the untouched encoder; by 400 of their labels SimCSE, which
# groups 500 other questions by type better: 67.9 % instead of 56.2.
_OTHER_LABELS = (
    "Halves tell what a sentence is about. A candidate may be better by labels of another kind, "
    "such as types of questions. If some of your sentences have such labels, give the command "
    "again with --labelled FILE, --label-column COL and another --output: it then chooses by them."
)
# What MERGED is, after an article.
AVERAGE = "average of the best candidate's weights and the untouched ones"
# What a score counts, by its key in an evaluation.
_UNITS = {FOUND_FIRST: "queries", SAME_LABEL: "texts"}
# What a score is the share of.
_SHARES = {
    DOCUMENTS: "held-out sentences find their document first",
    SENTENCES: "halves of held-out sentences find their other half first",
    LABELLED: "labelled texts are nearest to one of the same label",
}


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return what was gained, in words: on the user's documents, beside keyword search, by passages
    if they are long, and on general text."""
    others = [*_keyword_sentence(result), *_passage_sentence(result)]
    rejected = result["chosen"] == UNTOUCHED and own_text(result) == SENTENCES
    if rejected and chosen_by(result) == FOUND_FIRST:  # by halves, which know no other label
        others.append(_OTHER_LABELS)
    if result["winner"] != result["chosen"]:
        return [_unconfirmed(result), *others]
    if result["chosen"] == UNTOUCHED:
        return [_nothing_better(result), *others, *_few_sentence(result)]
    measures = [name for name in (SAME_LABEL, FOUND_FIRST) if name in result["table"]]
    own = [_own_sentence(result, name) for name in measures]
    general = {n: row for n, row in result["table"].items() if n not in OWN_WORDS}
    said = [_general_sentence(name, row) for name, row in general.items()]
    return [*own, *others, *said, *_average_sentences(result, general)]


def _share(result: Mapping[str, Any], measure: str) -> str:
    return _SHARES[LABELLED if measure == SAME_LABEL else own_text(result)]


def _what_chose(result: Mapping[str, Any]) -> str:
    return own_text(result) if chosen_by(result) == FOUND_FIRST else LABELLED


def _nothing_better(result: Mapping[str, Any]) -> str:
    own, dev, measure = own_text(result), result["dev"], chosen_by(result)
    best = max(score for name, score in dev.items() if name != UNTOUCHED)
    better = f"finds your {own} better" if measure == FOUND_FIRST else "is better by your labels"
    score, tested = result["table"][measure]["before"], result["models"][UNTOUCHED][measure]
    return (
        f"No candidate {better} than the untouched {result['encoder']} ({score:.1f} % of "
        f"{tested[_UNITS[measure]]:,} {_share(result, measure)}), so model/ is the untouched "
        f"encoder. On the dev {_UNITS[measure]} it reached {dev[UNTOUCHED]:.1f}, the "
        f"best other one {best:.1f}. Try more {_what_chose(result)}, or more --steps."
    )


def _few_sentence(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence if too few documents gave the scores of an untouched encoder that nothing
    beat; otherwise the difference has an interval or says why it has none."""
    if FOUND_FIRST not in result["table"]:
        return []
    tested, own = result["models"][UNTOUCHED][FOUND_FIRST], own_text(result)
    if tested["low"] is not None:
        return []
    search = ", or from keyword search" if WITH_KEYWORDS in result["table"] else ""
    return [
        f"The scores of your {own} are of only {tested['queries']:,} test queries, from "
        f"{tested['documents']} held-out {own}: too few to tell one encoder from another{search}."
    ]


def _unconfirmed(result: Mapping[str, Any]) -> str:
    winner, dev, measure = result["winner"], result["dev"], chosen_by(result)
    first, own = (score_of(result["models"][name][measure]) for name in (UNTOUCHED, winner))
    gap, unit = result["differences"][winner][measure], _UNITS[measure]
    share = " found first" if measure == FOUND_FIRST else " nearest to one of their label"
    tested = result["models"][winner][measure]
    documents = tested.get("documents", tested[unit])  # labelled texts are of none
    of_documents = f" of {documents:,} documents" if documents < tested[unit] else ""
    named = f"The {AVERAGE}" if winner == MERGED else winner
    return (
        f"{named} was the best by the dev {unit} "
        f"({dev[winner]:.1f} %{share}, {dev[UNTOUCHED]:.1f} by the untouched encoder), but the "
        f"{tested[unit]:,} test {unit}{of_documents}, which can only confirm it, do "
        f"not: {own:.1f} %, {first:.1f} by the untouched {result['encoder']}: {_gap(gap, 1)}. So "
        f"model/ is the untouched encoder. Try more {_what_chose(result)}, which make surer "
        "scores, or more --steps."
    )


def _own_sentence(result: Mapping[str, Any], measure: str) -> str:
    own = result["table"][measure]
    return (
        f"{own['after']:.1f} % of {_share(result, measure)}, {own['before']:.1f} % by the "
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
    average, measure = result["models"][MERGED], chosen_by(result)
    kept = ", ".join(f"{score_of(average[name]):.2f} on {name}" for name in lost)
    own = f"{score_of(average[measure]):.1f} %"
    finds = f"finds {own} first" if measure == FOUND_FIRST else f"reaches {own} by your labels"
    return [f"The average of its weights and the untouched ones, merged/, has {kept}, and {finds}."]


def _gap(row: Mapping[str, Any], digits: int) -> str:
    """Return a difference with its interval, and whether it may be chance."""
    if row["difference"] == 0 and row["low"] is None and row["p"] is not None:  # in one order
        return "no difference"
    if row["low"] is None:
        return f"{row['difference']:+.{digits}f} (of {TOO_FEW} for an interval): this may be chance"
    gap, low, high = (f"{row[key]:+.{digits}f}" for key in ("difference", "low", "high"))
    if row["difference"] == 0:
        return f"no difference (95 % interval {low} to {high})"
    chance = ": this may be chance" if row["low"] <= 0 <= row["high"] else ""
    return f"{gap} (95 % interval {low} to {high}){chance}"
