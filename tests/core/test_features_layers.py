"""Means over layers against one sentence at a time straight through transformers, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.readouts import FeatureOptions, build_features
from cotbert_core.readouts.layers import THREE_READOUTS, three_readouts

READOUTS = ("cls", "last", "first-last")


@pytest.fixture
def backbone(encoder_folder):
    return load_backbone(encoder_folder)


@pytest.fixture
def slow(exact_model, backbone):
    tokenizer = backbone.tokenizer.hf

    def features(texts, readout):
        vectors = []
        for text in texts:
            inputs = tokenizer(" ".join(text.split()), return_tensors="pt")
            with torch.no_grad():
                first = exact_model.embeddings(inputs["input_ids"])[0]
                last = exact_model(**inputs).last_hidden_state[0]
            tokens = len(last)
            vectors.append(
                {
                    "cls": lambda first, last, n: last[0],
                    "last": lambda first, last, n: sum(last) / n,
                    "first-last": lambda first, last, n: (sum(first) / n + sum(last) / n) / 2,
                }[readout](first, last, tokens)
            )
        return torch.stack(vectors).numpy()

    return features


@pytest.mark.parametrize("readout", READOUTS)
def test_vectors_equal_one_sentence_at_a_time(backbone, slow, sentences, readout):
    features = build_features(readout, backbone, precision="fp32")
    many = [*sentences, " two \n dogs\t run", "", *sentences[::-1]]
    np.testing.assert_allclose(features(many), slow(many, readout), atol=1e-5, rtol=0)


def test_last_is_the_mean_readout(encoder_folder, backbone, sentences):
    mean = SentenceEncoder.from_pretrained(encoder_folder, readout="mean").encode(sentences)
    assert np.array_equal(build_features("last", backbone)(sentences), mean)


def test_first_last_changes_no_later_reading(backbone, sentences):
    before = build_features("last", backbone)(sentences)
    build_features("first-last", backbone)(sentences)
    assert np.array_equal(build_features("last", backbone)(sentences), before)


def test_one_pass_gives_three_readouts(backbone, sentences):
    many = [*sentences, " two \n dogs\t run", "", *sentences[::-1]]
    together = SentenceEncoder(three_readouts(backbone), PoolingConfig("mean"))
    thirds = np.split(together.encode(many, precision="fp32"), 3, axis=1)
    assert sorted(THREE_READOUTS) == sorted(READOUTS)
    for readout, third in zip(THREE_READOUTS, thirds, strict=True):
        alone = build_features(readout, backbone, precision="fp32")(many)
        np.testing.assert_allclose(third, alone, atol=1e-6, rtol=0)
    assert np.abs(thirds[0] - thirds[1]).max() > 0.1, "premise: they differ"


def test_long_sentences_are_cut_to_the_encoder(backbone, slow):
    long = "the dogs and the men " * 100
    features = build_features("first-last", backbone, precision="fp32")
    assert np.isfinite(features([long, "oil"])).all()
    np.testing.assert_allclose(features([long, "oil"])[1:], slow(["oil"], "first-last"), atol=1e-5)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (FeatureOptions(denoise="pad"), "denoise is 'pad' with the {} readout: denoising needs a"),
        (FeatureOptions(template="denosent"), "template is 'denosent' with the {} readout"),
        (FeatureOptions(frequent=9), "frequent is 9 with the {} readout"),
        (FeatureOptions(top_k=9), "top_k is 9 with the {} readout, which does not use it"),
    ],
)
def test_options_of_other_readouts_are_refused(backbone, readout, options, fault):
    with pytest.raises(UserError, match=fault.format(readout)):
        build_features(readout, backbone, options)
