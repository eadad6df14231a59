"""Passages of long texts: what they cover, and scores by the best of them against a plain loop."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cotbert_core.evaluation.held_out import HeldOut
from cotbert_core.evaluation.keyword_search import words_of
from cotbert_core.evaluation.nearest_neighbours import Nearest
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.evaluation.passages import (
    Passages,
    are_long,
    cut_passages,
    with_best_passage,
)
from cotbert_core.evaluation.searches import score_searches

COUNTS = np.array([0, 3, 0, 1, 2, 0])


def numbered(words):
    return " , ".join(f"w{number}" for number in range(words))


@pytest.mark.parametrize("words", [9, 10, 16, 30])
def test_passages_cover_a_text_and_share_words_with_their_neighbours(words):
    text = f"« {numbered(words)} »"
    passages = cut_passages(text, 8)
    assert passages[0].startswith("« w0")
    assert passages[-1].endswith(f"w{words - 1} »")
    assert all(len(words_of(passage)) == 8 for passage in passages)
    assert {word for passage in passages for word in words_of(passage)} == set(words_of(text))
    for one, following in pairwise(passages):
        assert len({*words_of(one)} & {*words_of(following)}) >= 2
    assert len(set(passages)) == len(passages)


def test_a_text_of_one_passage_has_none_and_scripts_without_blanks_are_cut_by_letter():
    assert cut_passages(numbered(8), 8) == []
    assert cut_passages("", 8) == []
    assert cut_passages("日本語日本", 4) == ["日本語日", "本語日本"]
    assert cut_passages("हिन्दी में खोज", 2) == ["हिन्दी में", "में खोज"]
    long = numbered(9)
    assert are_long([long, "short"], 8)
    assert not are_long([long, "short", "short"], 8)


def test_the_best_passage_counts_half_and_a_text_without_passages_keeps_its_cosine():
    draw = np.random.default_rng(0)
    whole, cosines = draw.uniform(size=(4, len(COUNTS))), draw.uniform(size=(4, COUNTS.sum()))
    found = with_best_passage(whole, cosines, COUNTS)
    starts = np.cumsum(COUNTS) - COUNTS
    for text, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        own = cosines[:, start : start + count]
        best = own.max(axis=1) if count else whole[:, text]
        np.testing.assert_allclose(found[:, text], (whole[:, text] + best) / 2)
    assert not np.allclose(found, whole)
    np.testing.assert_array_equal(with_best_passage(whole, cosines[:, :0], 0 * COUNTS), whole)


def test_the_passages_of_some_texts_are_taken_in_their_order():
    passages = Passages(np.arange(6)[:, None], COUNTS)
    taken = passages.take(np.array([4, 0, 1, 4]))
    assert taken.counts.tolist() == [2, 0, 3, 2]
    assert taken.vectors.ravel().tolist() == [4, 5, 0, 1, 2, 4, 5]


def test_the_nearest_rows_by_passages_are_those_of_a_full_sort():
    draw = np.random.default_rng(2)
    counts = draw.integers(0, 4, 200)
    vectors = draw.standard_normal((200, 16)).astype(np.float32)
    pieces = draw.standard_normal((counts.sum(), 16)).astype(np.float32)
    queries, ids, passages = draw.standard_normal((3, 16)), np.arange(200), Passages(pieces, counts)
    running = Nearest(queries, 7)
    for start in range(0, 200, 40):
        cut = np.arange(start, start + 40)
        running.add(ids[cut], ids[cut], vectors[cut], passages=passages.take(cut))
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, vectors, pieces)]
    whole = unit[0] @ unit[1].T
    scores = with_best_passage(whole, unit[0] @ unit[2].T, counts)
    for hits, row, alone in zip(running.found(), scores, whole, strict=True):
        assert hits.rows.tolist() == np.argsort(-row)[:7].tolist()
        np.testing.assert_allclose(hits.scores, np.sort(row)[::-1][:7], atol=1e-6)
        assert hits.rows.tolist() != np.argsort(-alone)[:7].tolist()


def test_held_out_documents_are_found_by_their_best_passage():
    """The words of a query stand in one passage of its own target, and elsewhere alone."""
    targets = [" ".join(f"t{n}x{i}" for i in range(90 + n)) for n in range(6)]
    queries = [f"t{n}x{5 * n}" for n in range(6)]

    def encode(texts):
        """The share of each target's words among those of a text, beside a noise of all."""
        rows = [[sum(w.startswith(f"t{n}x") for w in t.split()) for n in range(6)] for t in texts]
        return np.array(rows, float) + [[len(t.split()) ** 0.5] for t in texts]

    held_out = HeldOut(queries, targets, np.arange(6))
    found = score_searches(EncodeFunctions(encode), held_out)
    assert found.passages is not None
    assert [len(cut) for cut in held_out.passages] == [len(cut_passages(t)) for t in targets]

    def unit(texts):
        vectors = encode(texts)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    ask, whole = unit(queries), unit(targets)
    best = np.array([[(unit(cut_passages(t)) @ q).max() for t in targets] for q in ask])
    scores = (ask @ whole.T + best) / 2
    mine = np.diag(scores)[:, None]
    assert found.passages.ranks.tolist() == (scores >= mine - 1e-6).sum(axis=1).tolist()
    assert found.both is not None
    both = scores + 0.3 * held_out.keywords.block()
    mine = np.diag(both)[:, None]
    assert found.both.ranks.tolist() == (both >= mine - 1e-6).sum(axis=1).tolist()


def test_each_document_counts_once_whether_most_are_long():
    """A long document has several queries, and as many targets."""
    long = [f"{numbered(70)} without {n}" for n in range(4)]
    documents = np.array([0, 0, 0, 0, 1, 2])
    few = HeldOut([*"abcdef"], [*long, "short", "brief"], np.arange(6), documents)
    assert few.passages == []
    half = HeldOut([*"abcde"], [*long, "short"], np.arange(5), documents[:5])
    assert half.passages == [*map(cut_passages, long), []]


def test_short_documents_are_not_searched_by_passages():
    held_out = HeldOut(["a", "b"], ["a short one", "b short one"], np.arange(2))
    draw = np.random.default_rng(0)
    found = score_searches(
        EncodeFunctions(lambda texts: draw.normal(size=(len(texts), 3))), held_out
    )
    assert found.passages is None
    assert found.both is None
