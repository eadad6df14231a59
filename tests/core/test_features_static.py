"""Means of static embeddings against one sentence, and one token, at a time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from cotbert_core import UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.readouts import build_features
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.readouts.static import (
    StaticFeatures,
    begin_words,
    between,
    most_frequent,
    remove_tokens,
)
from cotbert_core.templates.ragged_ids import Ragged

TEXTS = [
    "A man is playing the guitar.",
    "Two DOGS run",
    "12 frogs , 12 new frogs !",
    " What \n do you want?",
    "It's what he didn't say that they'll remember",
    "",
    "?",
    "The penguin swims: it sells sea shells .",
]
SWITCHES = ("frequent", "subwords", "case", "punctuation")


@pytest.fixture
def slow(backbone):
    """Lists of tokens, filtered a token at a time by its text, averaged in float64."""
    tokenizer = backbone.tokenizer.hf
    table = backbone.model.embeddings.word_embeddings.weight.detach().double().numpy()
    word_pieces = tokenizer.convert_ids_to_tokens(2) == "[CLS]"

    def tokens_of(text, remove):
        text = " ".join(text.split())
        # As in the released code, where a byte-level tokenizer would take the first word for a part
        # of one.
        text = " " + text if text and "subwords" in remove else text
        return tokenizer.tokenize(text.lower() if "case" in remove else text)

    def stays(token, remove, frequent):
        subword = token.startswith("##") if word_pieces else not token.startswith("Ġ")
        text = token if word_pieces else tokenizer.convert_tokens_to_string([token])
        wordless = not any(c.isalpha() or c.isdigit() for c in text)
        return not (
            (token in frequent and "frequent" in remove)
            or (subword and "subwords" in remove)
            or (wordless and "punctuation" in remove)
        )

    def features(texts, remove=(), count=36, counted=None):
        tally = Counter(t for text in set(counted or texts) for t in tokens_of(text, remove))
        ids = {t: tokenizer.convert_tokens_to_ids(t) for t in tally}
        frequent = sorted(tally, key=lambda t: (-tally[t], ids[t]))[:count]
        rows, whole = [], 0
        for text in texts:
            tokens = tokens_of(text, remove)
            left = [t for t in tokens if stays(t, remove, frequent)] if remove else []
            whole += bool(remove) and not left
            left = left or [tokenizer.cls_token, *tokens, tokenizer.sep_token]
            rows.append(np.mean([table[tokenizer.convert_tokens_to_ids(t)] for t in left], axis=0))
        return np.array(rows), whole

    return features


@pytest.mark.parametrize(
    "remove", [*(SWITCHES[:n] for n in range(5)), *((switch,) for switch in SWITCHES[1:])]
)
@pytest.mark.parametrize("count", [3, 36])
def test_the_switches_of_table_3_in_turn_and_alone(backbone, slow, remove, count):
    options = FeatureOptions(remove, frequent_count=count if "frequent" in remove else 36)
    features = build_features("static", backbone, options)
    expected, whole = slow(TEXTS, remove, count)
    np.testing.assert_allclose(features(TEXTS), expected, atol=1e-6, rtol=0)
    assert features.kept_whole == whole
    assert (whole > 0) == bool(remove), "premise: the empty sentence keeps its special tokens"
    empty = features([])
    assert (empty.shape, empty.dtype) == ((0, 32), np.float32)


def test_each_switch_changes_something(bert_folder, roberta_folder):
    """`case` only where the encoder tells cases apart."""
    for folder, cased in ((bert_folder, False), (roberta_folder, True)):
        backbone = load_backbone(folder)
        vectors = [
            StaticFeatures(backbone, FeatureOptions(SWITCHES[:n], 4 if n else 36))(TEXTS[:5])
            for n in range(5)
        ]
        for n, (before, after) in enumerate(pairwise(vectors)):
            changed = np.abs(before - after).max() > 1e-2
            assert changed == (cased or SWITCHES[n] != "case"), (folder, SWITCHES[n])


def test_frequent_tokens_are_those_of_the_sentences_counted(backbone, slow):
    remove, other = ("frequent",), ["oil price oil price oil", "oil price oil price oil"]
    features = StaticFeatures(backbone, FeatureOptions(remove, frequent_count=2), counted=TEXTS)
    expected = slow(other, remove, 2, counted=TEXTS)[0]
    np.testing.assert_allclose(features(other), expected, atol=1e-6, rtol=0)
    own = StaticFeatures(backbone, FeatureOptions(remove, frequent_count=2))(other)
    assert np.abs(own - expected).max() > 1e-2
    # A sentence is counted once.
    many = ["the ice", "the oil", *["a field"] * 9]
    once, same = (
        StaticFeatures(backbone, FeatureOptions(remove, 1), counted=counted)(many)
        for counted in (many, many[:3])
    )
    assert np.array_equal(once, same)


def test_lists_of_tokens_by_hand():
    tokens = Ragged.from_lists([[5, 1, 1], [], [3, 5, 1], [3, 4]])
    assert np.flatnonzero(most_frequent(tokens, 7, 2)).tolist() == [1, 3]
    assert np.flatnonzero(most_frequent(tokens, 7, 6)).tolist() == [1, 3, 4, 5]
    left, whole = remove_tokens(
        Ragged.from_lists([[1, 0, 2, 3], [1, 2], [], [3, 3]]), np.array([False, True, True, False])
    )
    assert [row.tolist() for row in left] == [[0, 3], [1, 2], [], [3, 3]]
    assert whole == 2
    rows = between((8,), Ragged.from_lists([[1, 2], [], [3]]), (9, 7))
    assert [row.tolist() for row in rows] == [[8, 1, 2, 9, 7], [8, 9, 7], [8, 3, 9, 7]]


def test_the_first_word_is_no_subword(roberta_folder):
    """A byte-level tokenizer marks the blank before a word, and a sentence begins without one."""
    backbone = load_backbone(roberta_folder)
    assert backbone.tokenizer.hf.tokenize("the the")[0] != "Ġthe", "premise"
    features = StaticFeatures(backbone, FeatureOptions(("subwords",)))
    first, second = features(["the", "the the"])
    assert features.kept_whole == 0
    assert np.array_equal(first, second)


def test_half_a_letter_is_no_punctuation(roberta_folder):
    """Byte-level, an e with an accent is two bytes, and one of them alone may be any sign."""
    backbone = load_backbone(roberta_folder)
    halves = backbone.tokenizer.hf.tokenize("é")
    assert len(halves) == 2, "premise"
    options = FeatureOptions(("punctuation",))
    features = StaticFeatures(backbone, options)
    assert np.array_equal(features(["é !"]), features(["é"]))
    assert features.kept_whole == 0


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"remove": ("frequent", "caps")}, "unknown bias to remove 'caps': choose one of case, fr"),
        ({"remove": ("frequent",), "frequent_count": 0}, "frequent_count is 0: give at least 1"),
        (
            {"remove": ("case",), "frequent_count": 9},
            "frequent_count is 9 and no frequent tokens are",
        ),
    ],
)
def test_what_is_wrong_is_reported(backbone, options, fault):
    with pytest.raises(UserError, match=fault):
        build_features("static", backbone, FeatureOptions(**options))


def test_no_token_of_a_vocabulary_without_marks_is_a_subword():
    marked = [
        (["the", "##ing"], {"type": "WordPiece", "continuing_subword_prefix": "##"}),
        (["Ġthe", "ing"], {"type": "BPE", "continuing_subword_prefix": ""}),
        (["▁the", "ing"], {"type": "Unigram"}),
    ]
    for tokens, model in marked:
        rules = {"model": model, "added_tokens": []}
        assert begin_words(tokens, rules) == [True, False], model
    assert begin_words(["the", "ing"], {"model": {"type": "WordLevel"}}) == [True, True]
