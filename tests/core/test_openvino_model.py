"""The compiled encoder against torch: the same vectors for every reading, in threads and out."""

from __future__ import annotations

from importlib import util

import numpy as np
import pytest
import torch

from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.exporting.openvino_model import with_openvino
from cotbert_core.sentence_encoder import SentenceEncoder

SENTENCES = ["A man walks.", "", "Two dogs", *(f"She saw {'a penguin ' * n}" for n in range(12))]
# RoBERTa's positions begin behind the padding's, and position denoising gives others.
READINGS = [
    ("bert", {"readout": "mean"}),
    ("bert", {"readout": "mean", "attention": "unpadded"}),
    ("bert", {"template": "cot-bert/anchor", "denoise": "pad"}),
    ("roberta", {"template": "promptbert/anchor", "denoise": "position"}),
]


@pytest.fixture(autouse=True)
def openvino():
    return pytest.importorskip("openvino", reason="needs the extra 'openvino'")


@pytest.mark.parametrize(("family", "pooling"), READINGS)
def test_vectors_are_those_of_torch(request, family, pooling):
    """Torch encodes after the model was compiled, which must not change it."""
    folder = request.getfixturevalue(f"{family}_folder")
    encoder = SentenceEncoder.from_pretrained(folder, **pooling)
    compiled = with_openvino(encoder, "fp32")
    for budget in (None, 32):  # one batch, and many beside each other
        vectors = compiled.encode(SENTENCES, batch_tokens=budget)
        expected = encoder.encode(SENTENCES, batch_tokens=budget, precision="fp32")
        np.testing.assert_allclose(vectors, expected, atol=2e-5)
    assert np.abs(expected[0] - expected[2]).max() > 1e-3, "premise: texts differ"
    assert (compiled.dimension, compiled.max_length) == (encoder.dimension, encoder.max_length)


def test_a_later_batch_does_not_change_earlier_vectors(bert_folder):
    compiled = with_openvino(SentenceEncoder.from_pretrained(bert_folder, readout="cls"), "fp32")
    rows = compiled.bound.wrap(compiled.tokenize(["A man walks."]))
    given = {"input_ids": rows.ids, "attention_mask": None}
    places = torch.arange(rows.ids.shape[1])[None]
    first = compiled.backbone.model(**given, position_ids=places).last_hidden_state
    kept = first.clone()
    compiled.backbone.model(input_ids=rows.ids.flip(1), attention_mask=None, position_ids=places)
    assert torch.equal(first, kept)


def test_bf16_is_close(bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder, readout="mean")
    vectors = with_openvino(encoder, "bf16").encode(SENTENCES)
    expected = encoder.encode(SENTENCES, precision="fp32")
    assert cosines(vectors, expected).min() > 0.999


def test_without_the_extra_it_is_refused(bert_folder, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs openvino: install with pip install 'openvino>"):
        with_openvino(SentenceEncoder.from_pretrained(bert_folder))
