"""Examples of a difference: held-out queries that one of two models alone finds first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cotbert_core.evaluation.held_out import HeldOut
from cotbert_core.messages.printable import shortened

EXAMPLES = 5
# The number of characters of a document that are shown.
LONGEST = 300
HEADER = ("query", "its document", "rank before", "rank after")


def changed_queries(
    held_out: HeldOut, before: np.ndarray, after: np.ndarray
) -> dict[str, int | list[dict[str, Any]]]:
    """Return the queries that find their document first with one of two models, for JSON.

    before, after: (Q,) rank of each query's document by cosine. "gained" and "lost" are counts;
    "examples" are the EXAMPLES queries of each whose rank changed most, the gained ones first.
    """
    gained = np.flatnonzero((after == 1) & (before > 1))
    lost = np.flatnonzero((before == 1) & (after > 1))
    examples = [*_furthest(gained, before), *_furthest(lost, after)]
    return {
        "gained": len(gained),
        "lost": len(lost),
        "examples": [
            {
                "query": held_out.queries[number],
                "document": held_out.targets[held_out.rows[number]],
                "before": int(before[number]),
                "after": int(after[number]),
            }
            for number in examples
        ],
    }


def _furthest(queries: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    return queries[np.argsort(-ranks[queries], kind="stable")[:EXAMPLES]]


def changed_sentence(changed: Mapping[str, Any], queries: int) -> str:
    """Return what changed, in words. changed: of `changed_queries`. queries: number of all."""
    find = "finds its" if changed["gained"] == 1 else "find their"
    return (
        f"Of {queries:,} queries, {changed['gained']:,} {find} document first only after, and "
        f"{changed['lost']:,} only before. Below are those whose rank changed most, at most "
        f"{EXAMPLES} of each. Ranks are by cosine, without keyword search."
    )


def changed_rows(changed: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of text cells for each example, under HEADER."""
    return [
        (
            one["query"],
            shortened(one["document"], LONGEST),
            f"{one['before']:,}",
            f"{one['after']:,}",
        )
        for one in changed["examples"]
    ]
