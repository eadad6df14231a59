"""A block of texts against the encoder, one text at a time."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.embedding.encoding import encode_block

LIMIT = 6
LONG = "A man is playing the guitar and a woman is singing a song on the stage"
TEXTS = ["A man", LONG, "Two dogs run", "A man", LONG, "", "oil"]


@pytest.fixture(params=[None, "cot-bert/anchor"])
def encoder(request, bert_folder):
    return SentenceEncoder.from_pretrained(bert_folder, request.param, max_length=LIMIT)


def one_by_one(encoder, texts):
    return np.concatenate([encoder.encode([t], normalize=False, precision="fp32") for t in texts])


def test_long_texts_are_cut_and_counted_and_equal_ones_encoded_once(encoder, monkeypatch):
    asked, encode = [], encoder.encode_tokens

    def counted(ids, *arguments, **options):
        asked.append(len(ids))
        return encode(ids, *arguments, **options)

    monkeypatch.setattr(encoder, "encode_tokens", counted)
    found = encode_block(encoder, TEXTS, "truncate", "fp32")
    assert (found.rows.tolist(), asked, found.duplicates) == ([*range(7)], [5], 2)
    np.testing.assert_allclose(found.vectors, one_by_one(encoder, TEXTS), rtol=1e-3, atol=1e-5)
    assert found.long.tolist() == [text == LONG for text in TEXTS]


def test_long_texts_have_no_vector_where_they_are_an_error(encoder):
    found = encode_block(encoder, TEXTS, "error", "fp32")
    assert found.rows.tolist() == [0, 2, 3, 5, 6]
    expected = one_by_one(encoder, [TEXTS[place] for place in found.rows])
    np.testing.assert_allclose(found.vectors, expected, rtol=1e-3, atol=1e-5)
    assert (found.duplicates, found.long.any()) == (1, False)
    nothing = encode_block(encoder, [LONG, LONG], "error", "fp32")
    assert (nothing.rows.tolist(), nothing.vectors.shape) == ([], (0, 32))


def test_pieces_of_a_long_text_are_averaged_by_their_tokens(encoder):
    texts = [*TEXTS, *(" ".join(["a"] * words) for words in range(4, 14))]
    found = encode_block(encoder, texts, "split-mean", "fp32")
    for text, vector in zip(texts, found.vectors, strict=True):
        tokens = encoder.tokenize([text])[0]
        parts = np.split(tokens, range(LIMIT, len(tokens), LIMIT))
        vectors = encoder.encode_tokens(Ragged.from_lists(parts), precision="fp32")
        weights = [max(1, len(part)) for part in parts]
        expected = np.average(vectors, axis=0, weights=weights)
        np.testing.assert_allclose(vector, expected, rtol=1e-3, atol=1e-5, err_msg=text)
    np.testing.assert_array_equal(found.vectors[1], found.vectors[4])
    cut = encode_block(encoder, TEXTS, "truncate", "fp32")
    assert np.abs(found.vectors[1] - cut.vectors[1]).max() > 0.01
    assert found.long.tolist() == (encoder.tokenize(texts).lengths > LIMIT).tolist()
