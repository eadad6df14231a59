"""Which held-out queries are shown as examples of a difference between two models."""

from __future__ import annotations

import numpy as np

from cotbert_core.evaluation.held_out import HeldOut
from pipelines.evaluating.changed_queries import (
    EXAMPLES,
    LONGEST,
    changed_queries,
    changed_rows,
    changed_sentence,
)

# Two queries before the eight that are searched here: a query's document has another number.
TARGETS = [f"document {number}" for number in range(10)]
HELD_OUT = HeldOut([f"query {number}" for number in range(2, 10)], TARGETS, np.arange(2, 10))


def test_queries_that_one_model_alone_finds_are_counted_and_the_furthest_shown():
    before = np.array([1, 1, 2, 9, 4, 1, 3, 5])
    after = np.array([1, 7, 1, 1, 1, 2, 2, 5])
    found = changed_queries(HELD_OUT, before, after)
    assert (found["gained"], found["lost"]) == (3, 2)
    assert found["examples"] == [
        {"query": f"query {n}", "document": f"document {n}", "before": b, "after": a}
        for n, b, a in ((5, 9, 1), (6, 4, 1), (4, 2, 1), (3, 1, 7), (7, 1, 2))
    ]
    assert changed_sentence(found, 8).startswith(
        "Of 8 queries, 3 find their document first only after, and 2 only before."
    )


def test_as_many_examples_of_losses_as_of_gains_and_long_documents_cut():
    held_out = HeldOut(["query"] * 40, [f"{n} " + "x" * 400 for n in range(40)], np.arange(40))
    after = np.where(np.arange(40) < 20, 1, 30)
    found = changed_queries(held_out, 31 - after, after)
    assert (found["gained"], found["lost"]) == (20, 20)
    rows = changed_rows(found)
    assert [row[2:] for row in rows] == [("30", "1")] * EXAMPLES + [("1", "30")] * EXAMPLES
    assert {len(row[1]) for row in rows} == {LONGEST}
    assert changed_queries(held_out, after, after)["examples"] == []
