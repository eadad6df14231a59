"""Sentences on the speedup and the loss of an int8 graph, for the terminal and the model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.evaluating.differences import headlines
from pipelines.evaluating.scoring import score_of


def gain_sentence(facts: Mapping[str, Any]) -> str:
    """Return a sentence that compares the graph's speed with torch's on the same texts."""
    fast, torch = facts["sentences_per_second"], facts["sentences_per_second_torch"]
    ratio = facts["speedup"]
    how = f"{ratio:.1f} times as fast as torch" if ratio > 1 else "no faster than torch"
    return f"int8 is {how} on this machine ({fast:,.0f} against {torch:,.0f} sentences/s)."


def score_sentences(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each score, before and after, and whether the change is significant."""
    entries = headlines(facts["differences"])
    return [_sentence(name, of, entry, facts["scores"]) for name, of, entry in entries]


def _sentence(name: str, of: str, entry: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    before, after = (score_of(scores[when][name]) for when in ("before", "after"))
    low, high = entry["low"], entry["high"]
    chance = ", which may be chance" if low is not None and low <= 0 <= high else ""
    return f"{of[0].upper()}{of[1:]}: {before:.2f} before, {after:.2f} in int8{chance}."
