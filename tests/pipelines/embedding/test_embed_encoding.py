"""A block of texts against the encoder, one text at a time."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.embedding.encoding import encode_block, pieces, unique_texts, weighted_means

LIMIT = 6
LONG = "A man is playing the guitar and a woman is singing a song on the stage"
TEXTS = ["A man", LONG, "Two dogs run", "A man", LONG, "", "oil"]


@pytest.fixture(params=[None, "cot-bert/anchor"])
def encoder(request, bert_folder):
    return SentenceEncoder.from_pretrained(bert_folder, request.param, max_length=LIMIT)


def one_by_one(encoder, texts):
    return np.concatenate([encoder.encode([t], normalize=False, precision="fp32") for t in texts])


def test_long_texts_are_cut_and_counted_and_equal_ones_encoded_once(encoder, monkeypatch):
    asked = []
    encode = encoder.encode_tokens
    monkeypatch.setattr(
        encoder,
        "encode_tokens",
        lambda ids, *a, **k: asked.append(len(ids)) or encode(ids, *a, **k),
    )
    found = encode_block(encoder, TEXTS, "truncate", "fp32")
    assert found.rows.tolist() == list(range(7))
    assert asked == [5]
    np.testing.assert_allclose(found.vectors, one_by_one(encoder, TEXTS), rtol=1e-3, atol=1e-5)
    assert found.long.tolist() == [text == LONG for text in TEXTS]
    assert found.duplicates == 2


def test_long_texts_have_no_vector_where_they_are_an_error(encoder):
    found = encode_block(encoder, TEXTS, "error", "fp32")
    assert found.rows.tolist() == [0, 2, 3, 5, 6]
    expected = one_by_one(encoder, [TEXTS[place] for place in found.rows])
    np.testing.assert_allclose(found.vectors, expected, rtol=1e-3, atol=1e-5)
    assert (found.duplicates, found.long.any()) == (1, False)


def test_a_block_of_long_texts_alone_has_no_vectors(encoder):
    found = encode_block(encoder, [LONG, LONG], "error", "fp32")
    assert (found.rows.tolist(), found.vectors.shape) == ([], (0, 32))


def test_pieces_of_a_long_text_are_averaged_by_their_tokens(encoder):
    found = encode_block(encoder, TEXTS, "split-mean", "fp32")
    cut = encode_block(encoder, TEXTS, "truncate", "fp32")
    (tokens,) = (encoder.tokenize([LONG])[0],)
    parts = [tokens[start : start + LIMIT] for start in range(0, len(tokens), LIMIT)]
    assert len(parts[-1]) < LIMIT < len(tokens), "the pieces must differ in length"
    vectors = [encoder.encode_tokens(Ragged.from_lists([p]), precision="fp32")[0] for p in parts]
    expected = sum(len(p) * v for p, v in zip(parts, vectors, strict=True)) / len(tokens)
    np.testing.assert_allclose(found.vectors[1], expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(found.vectors[1], found.vectors[4])
    short = [0, 2, 3, 5, 6]
    np.testing.assert_allclose(found.vectors[short], cut.vectors[short], rtol=1e-3, atol=1e-5)
    assert np.abs(found.vectors[1] - cut.vectors[1]).max() > 0.01
    assert found.long.sum() == 2


def test_padding_is_what_the_encoder_is_given(encoder, monkeypatch):
    given = []
    model = encoder.backbone.model
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda **k: given.append(k["input_ids"].shape) or forward(**k)
    )
    monkeypatch.setattr(type(encoder.backbone), "batch_tokens", 2 * (LIMIT + encoder.bound.length))
    counts = encode_block(encoder, TEXTS, "truncate", "fp32").counts
    assert len(given) > 1
    assert counts["tokens"] == sum(rows * width for rows, width in given)
    lengths = np.minimum(encoder.tokenize(list(dict.fromkeys(TEXTS))).lengths, LIMIT)
    real = int((lengths + encoder.bound.length).sum())
    assert counts["padding"] == counts["tokens"] - real > 0


def test_distinct_texts_keep_their_order():
    distinct, which = unique_texts(["b", "a", "b", "c"])
    assert (distinct, which.tolist()) == (["b", "a", "c"], [0, 1, 0, 2])


def test_pieces_and_their_means():
    lists = [[1, 2, 3, 4, 5], [], [6, 7], [8, 9, 10, 11]]
    cut, first = pieces(Ragged.from_lists(lists), 2)
    assert [cut[i].tolist() for i in range(len(cut))] == [
        [1, 2],
        [3, 4],
        [5],
        [],
        [6, 7],
        [8, 9],
        [10, 11],
    ]
    assert first.tolist() == [0, 3, 4, 5]
    vectors = np.array([[1.0], [2.0], [6.0], [7.0], [8.0], [1.0], [3.0]], np.float32)
    means = weighted_means(vectors, cut.lengths, first)
    assert means.ravel().tolist() == pytest.approx([12 / 5, 7, 8, 2])
    assert weighted_means(vectors[:0], cut.lengths[:0], first[:0]).shape == (0, 1)


def test_packed_rows_have_no_padding(bert_folder):
    counts = [
        encode_block(
            SentenceEncoder.from_pretrained(bert_folder, max_length=LIMIT, attention=attention),
            TEXTS,
            "truncate",
            "fp32",
        ).counts
        for attention in ("auto", "unpadded")
    ]
    padded, packed = counts
    assert padded["padding"] > packed["padding"] == 0
    assert packed["tokens"] == padded["tokens"] - padded["padding"]
