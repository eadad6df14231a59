"""The score without labels: ranks in blocks against a loop over all targets."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.evaluation import held_out
from cotbert_core.evaluation.held_out import HeldOut, score_held_out
from cotbert_core.evaluation.pairs import EncodeFunctions


def table_encode(table):
    return EncodeFunctions(lambda texts: np.array([table[text] for text in texts], np.float32))


def slow_ranks(table, one):
    """One cosine at a time, over the distinct texts of the targets."""
    ranks = []
    for query, row in zip(one.queries, one.rows, strict=True):
        own = one.targets[row]
        cosines = {t: cosine(table[query], table[t]) for t in set(one.targets)}
        nearer = [t for t in cosines if t != own and not cosines[t] < cosines[own] - 1e-6]
        ranks.append(1 + len(nearer))
    return ranks


def cosine(a, b):
    a, b = np.float32(a).astype(float), np.float32(b).astype(float)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def random_case(queries=40, targets=90, seed=0):
    """Queries near their targets, targets with twins, and rows in no order."""
    draw = np.random.default_rng(seed)
    texts = [f"target {n % (targets - 9)}" for n in range(targets)]
    rows = draw.permutation(targets)[:queries]
    table = {text: draw.normal(size=8) for text in dict.fromkeys(texts)}
    names = [f"query {n}" for n in range(queries)]
    for name, row in zip(names, rows, strict=True):
        table[name] = table[texts[row]] + draw.normal(size=8)
    return table, HeldOut(names, texts, rows)


@pytest.mark.parametrize("cells", [1, 100, 2_000_000])
def test_the_ranks_are_those_of_a_loop_whatever_the_blocks(monkeypatch, cells):
    monkeypatch.setattr(held_out, "BLOCK_CELLS", cells)
    table, one = random_case()
    found = score_held_out(table_encode(table), one)
    expected = slow_ranks(table, one)
    assert found.ranks.tolist() == expected
    assert min(expected) == 1, "premise: ranks of all kinds"
    assert max(expected) > 10, "premise: ranks of all kinds"
    assert found.found_first == pytest.approx(100 * np.mean([r == 1 for r in expected]))
    reciprocal = [1 / r if r <= 10 else 0 for r in expected]
    assert found.mrr10 == pytest.approx(100 * np.mean(reciprocal))
    assert held_out.HeldOutScores(np.array([10, 11])).reciprocal.tolist() == [0.1, 0]


def test_a_query_competes_with_one_target_of_each_other_document():
    """Several queries of a document: its other targets, which hold the query, are left out."""
    table, whole = random_case(queries=60, targets=60)
    documents = np.sort(np.random.default_rng(3).integers(0, 20, 60))
    one = HeldOut(whole.queries[:30], whole.targets, whole.rows[:30], documents)
    first = {document: row for row, document in reversed(list(enumerate(documents)))}
    expected = []
    for query, row in zip(one.queries, one.rows, strict=True):
        mine = {one.targets[row], one.targets[first[documents[row]]]}
        texts = {one.targets[r] for r in first.values()} - mine
        own = cosine(table[query], table[one.targets[row]])
        nearer = [t for t in texts if not cosine(table[query], table[t]) < own - 1e-6]
        expected.append(1 + len(nearer))
    encoded = []
    encode = table_encode(table).wrapped(lambda one: lambda t: encoded.extend(t) or one(t))
    ranks = score_held_out(encode, one).ranks.tolist()
    assert ranks == expected
    compared = {one.targets[row] for row in {*one.rows, *first.values()}}
    assert set(encoded) == {*one.queries, *compared}
    assert len(compared) < len(set(one.targets)), "premise: some targets are never compared"
    assert ranks != score_held_out(table_encode(table), whole).ranks.tolist()
    assert one.searched == len(first) < whole.searched == 60
    assert any(first[documents[row]] != row for row in one.rows), "premise: several of a document"
    single = HeldOut(whole.queries, whole.targets, whole.rows, np.arange(60))
    ranks = score_held_out(table_encode(table), single).ranks.tolist()
    assert ranks == score_held_out(table_encode(table), whole).ranks.tolist()


def test_a_tie_counts_against_the_model_and_a_twin_does_not():
    near, far = [1.0, 0.0], [0.0, 1.0]
    table = {"q": near, "own": near, "other": near, "far": far}
    ranks = {
        ("own", "far"): 1,
        ("own", "other", "far"): 2,
        ("own", "own", "far"): 1,
        ("own", "own", "other"): 2,
    }
    for targets, rank in ranks.items():
        one = HeldOut(["q"], list(targets), np.array([0]))
        assert score_held_out(table_encode(table), one).ranks.tolist() == [rank], targets
    twin_row = HeldOut(["q"], ["far", "own", "own"], np.array([2]))
    assert score_held_out(table_encode(table), twin_row).ranks.tolist() == [1]


@pytest.mark.parametrize("vector", [[0.0, 0.0], [3.0, 3.0]])
def test_vectors_that_tell_nothing_apart_find_nothing(vector):
    texts = [f"t{n}" for n in range(5)]
    one = HeldOut(["a", "b"], texts, np.array([0, 3]))
    found = score_held_out(EncodeFunctions(lambda wanted: np.array([vector] * len(wanted))), one)
    assert found.ranks.tolist() == [5, 5]
    assert (found.found_first, found.mrr10) == (0.0, 20.0)


def test_each_distinct_text_is_encoded_once():
    asked = []
    one = HeldOut(["q", "t1", "q"], ["t1", "t2", "t1"], np.array([0, 1, 2]))
    encode = EncodeFunctions(lambda texts: asked.extend(texts) or np.eye(len(texts)))
    score_held_out(encode, one)
    assert sorted(asked) == ["q", "t1", "t2"]


def test_documents_are_numbered_in_the_order_of_their_first_targets():
    held = HeldOut(["q"] * 4, list("abcd"), np.arange(4), np.array([30, 10, 20, 30]))
    first, of = held.of_documents
    assert first.tolist() == [0, 1, 2]
    assert of.tolist() == held.query_documents.tolist() == [0, 1, 2, 0]
