"""BM25 in sparse products against the formula word by word, and added to cosines."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from cotbert_core.evaluation import held_out, keyword_search
from cotbert_core.evaluation.held_out import HeldOut, HeldOutScores, score_held_out, score_keywords
from cotbert_core.evaluation.keyword_search import (
    KEYWORD_WEIGHTS,
    KeywordCounts,
    keyword_scores,
    words_of,
)
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.evaluation.searches import best_weight, score_searches

WORDS = ["oil", "price", "dog", "the", "the", "the", "ran", "Dog", "quickly", "über"]


def slow_bm25(query, text, texts):
    """Robertson and Zaragoza (2009), section 3, one word at a time."""
    mean = sum(len(words_of(t)) for t in texts) / len(texts)
    total = 0.0
    for word in set(words_of(query)):
        having = sum(word in words_of(t) for t in texts)
        count = words_of(text).count(word)
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        length = 1 - 0.75 + 0.75 * len(words_of(text)) / mean
        total += rarity * count * 2.2 / (count + 1.2 * length)
    return total


def drawn(number, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(0, 9))) for _ in range(number)]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("cells", [1, 2_000_000])
def test_scores_are_those_of_the_formula_whatever_the_blocks(monkeypatch, size, cells):
    monkeypatch.setattr(keyword_search, "BLOCK_CELLS", cells)
    queries, texts = [*drawn(6, 1), "nowhere", ""], drawn(25, 2)
    counts = KeywordCounts(queries)
    for start in range(0, len(texts), size):
        counts.add(texts[start : start + size])
    scores = counts.scores()
    expected = np.array([[slow_bm25(q, t, texts) for t in texts] for q in queries])
    best = expected.max(axis=1, keepdims=True)
    assert best[:-2].min() > 0, "premise"
    np.testing.assert_allclose(scores.block()[:-2], (expected / np.where(best, best, 1))[:-2])
    assert not scores.block()[-2:].any(), "no text has a word of these queries"
    some = scores.block(slice(1, 3), np.array([4, 0]))
    np.testing.assert_array_equal(some, scores.block()[1:3][:, [4, 0]])


def test_words_have_no_case_and_scripts_without_blanks_are_searched_by_letters_and_pairs():
    assert words_of("Der Fuß, the DOG's x_1!") == ["der", "fuss", "the", "dog", "s", "x_1"]
    assert words_of("日本語 ok 京") == ["日", "本", "語", "ok", "京", "日本", "本語"]
    assert words_of("हिन्दी में தமிழ்") == ["हिन्दी", "में", "தமிழ்"], "marks are parts of words"
    assert words_of("re\u0301sume\u0301") == ["résumé"], "an accent may be a character of its own"


def test_texts_can_be_put_into_another_order():
    scores = keyword_scores(["oil", "dog"], ["oil", "dog dog", "oil dog"])
    moved = scores.reordered(np.array([2, -1, 0, 1])).block()
    np.testing.assert_array_equal(moved[:, [0, 2, 3]], scores.block()[:, [2, 0, 1]])
    assert not moved[:, 1].any()
    left = scores.reordered(np.array([0, 2])).block()
    assert left[1].tolist() == [0, 1], "a query's best is that of the remaining texts"
    assert scores.block()[1, 2] < 1


@pytest.mark.parametrize("cells", [1, 2_000_000])
def test_the_best_of_a_query_is_that_of_the_texts_it_competes_with(monkeypatch, cells):
    """Several queries of a document: its other targets, which hold the query, set no standard."""
    monkeypatch.setattr(held_out, "BLOCK_CELLS", cells)
    pieces, documents = drawn(24, 5), np.repeat(np.arange(8), 3)
    texts = [" ".join(pieces[start : start + 3]) for start in range(0, 24, 3)]
    targets = [texts[d].replace(pieces[n], f"t{n}", 1) for n, d in enumerate(documents)]
    one = HeldOut(pieces[1:13], targets, np.arange(1, 13), documents)
    assert one.distinct[0] == [*targets[:13], *targets[15::3]]
    firsts, shares, siblings = targets[::3], one.keywords.block(), 0
    for query, row in enumerate(one.rows):
        rivals = {t for d, t in enumerate(firsts) if d != documents[row]}
        bm25 = {t: slow_bm25(one.queries[query], t, firsts) for t in one.distinct[0]}
        best = max(bm25[t] for t in {*rivals, targets[row]})
        siblings += max(bm25.values()) > best
        for number, text in enumerate(one.distinct[0]):
            if text in rivals or text == targets[row]:
                assert shares[query, number] == pytest.approx(bm25[text] / (best or 1))
    assert siblings > 3, "premise: a sibling has more of a query's words"


def slow_ranks(own, texts, scores):
    """scores: of each text, by the text."""
    return 1 + sum(scores[t] >= scores[own] - 1e-6 for t in texts if t != own)


def test_held_out_ranks_by_words_by_cosines_and_by_both():
    """Targets with twins; queries that share words with their own target and are near to it."""
    draw = np.random.default_rng(0)
    texts = [f"{text} n{number % 20}" for number, text in enumerate(drawn(20, 3) * 2)]
    rows = draw.permutation(40)[:15]
    queries = [f"{texts[row].split()[0]} {number} the" for number, row in enumerate(rows)]
    table = {text: draw.normal(size=4) for text in dict.fromkeys(texts)}
    table |= {
        q: table[texts[row]] + draw.normal(size=4) for q, row in zip(queries, rows, strict=True)
    }

    def encode(wanted):
        return np.array([table[text] for text in wanted], np.float32)

    one = HeldOut(queries, texts, rows)
    found = score_searches(EncodeFunctions(encode), one)
    alone, together = found.alone, found.keywords
    assert alone.ranks.tolist() == score_held_out(EncodeFunctions(encode), one).ranks.tolist()
    by_words, by_both = [], []
    distinct = list(dict.fromkeys(texts))
    for query, row in zip(queries, rows, strict=True):
        bm25 = {t: slow_bm25(query, t, distinct) for t in distinct}
        share = {t: score / max(bm25.values()) for t, score in bm25.items()}
        unit = {t: table[t] / np.linalg.norm(table[t]) for t in distinct}
        ask = table[query] / np.linalg.norm(table[query])
        both = {t: float(ask @ unit[t]) + 0.3 * share[t] for t in distinct}
        by_words.append(slow_ranks(texts[row], distinct, share))
        by_both.append(slow_ranks(texts[row], distinct, both))
    assert score_keywords(one).ranks.tolist() == by_words
    assert together.ranks.tolist() == by_both
    assert len({tuple(by_words), tuple(by_both), tuple(alone.ranks)}) == 3, "premise: all differ"


def test_dev_queries_choose_the_weight_of_keywords():
    """The first target of a query is its own by the words, the second by the cosine."""
    words = [f"w{number}" for number in range(8)]
    targets = [f"{word} filler" for word in words]
    vectors = dict(zip(targets, np.eye(8), strict=True))
    # The cosine to the own target is 0.6 less than to another; its words are all in the own one.
    for place, word in enumerate(words):
        vectors[word] = 0.2 * np.eye(8)[place] + 0.8 * np.eye(8)[(place + 1) % 8]
    unit = 0.6 / np.linalg.norm(vectors["w0"])
    assert max(w for w in KEYWORD_WEIGHTS if w < unit) == 0.7, "premise: less is not enough"

    def encode(texts):
        return np.array([vectors[text] for text in texts], np.float32)

    test = HeldOut(words[:3], targets, np.arange(3))
    dev = HeldOut(words[3:], targets, np.arange(3, 8))
    fixed = score_searches(EncodeFunctions(encode), test)
    assert (fixed.keywords.keyword_weight, fixed.keywords.found_first) == (0.3, 0.0)
    fitted = score_searches(EncodeFunctions(encode), test, dev)
    assert (fitted.keywords.keyword_weight, fitted.keywords.found_first) == (1.0, 100.0)
    assert fitted.alone.ranks.tolist() == fixed.alone.ranks.tolist()
    assert fitted.alone.keyword_weight is None


def test_a_weight_that_is_hardly_better_than_the_default_is_not_chosen():
    default = KEYWORD_WEIGHTS.index(0.3)
    ranks = np.full((len(KEYWORD_WEIGHTS), 100), 9)
    ranks[default, :50] = 1

    def chosen(each=1):
        return best_weight([HeldOutScores(some) for some in ranks], np.arange(100) // each)

    assert chosen() == 0.3
    ranks[default + 3, 2:53] = 1  # 3 queries won, 2 lost: the standard error is 2.2 queries
    assert chosen() == 0.3
    ranks[default + 3, 53:60] = 1
    assert chosen() == KEYWORD_WEIGHTS[default + 3] == 0.7
    assert chosen(each=10) == 0.3, "all queries that are won are of one document"
    ranks[:] = 9
    ranks[default, :45] = ranks[default + 3, 45:] = 1
    assert chosen() == 0.7, "55 queries won, 45 lost: the standard error is 9.95 queries"
