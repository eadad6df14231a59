"""Means over layers against one sentence at a time straight through transformers, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.readouts import FEATURES, build_features
from cotbert_core.readouts.layers import THREE_READOUTS, ThreeReadouts
from cotbert_core.readouts.options import FeatureOptions


@pytest.fixture
def many(sentences):
    """The last of them is cut to the encoder, which the slow reference does not do."""
    return [*sentences, " two \n dogs\t run", "", *sentences[::-1], "the dogs and the men " * 100]


@pytest.fixture
def slow(exact_model, backbone):
    """Vectors by the three readouts."""

    def features(texts):
        found = {"cls": [], "last": [], "first-last": []}
        for text in texts:
            inputs = backbone.tokenizer.hf(" ".join(text.split()), return_tensors="pt")
            with torch.no_grad():
                first = exact_model.embeddings(inputs["input_ids"])[0]
                last = exact_model(**inputs).last_hidden_state[0]
            tokens = len(last)
            found["cls"].append(last[0])
            found["last"].append(sum(last) / tokens)
            found["first-last"].append((sum(first) / tokens + sum(last) / tokens) / 2)
        return {readout: torch.stack(rows).numpy() for readout, rows in found.items()}

    return features


def test_vectors_equal_one_sentence_at_a_time_and_each_readout_leaves_the_others(
    backbone, slow, many
):
    for readout, expected in slow(many[:-1]).items():
        vectors = build_features(readout, backbone, precision="fp32")(many)
        np.testing.assert_allclose(vectors[:-1], expected, atol=1e-5, rtol=0)
        assert np.isfinite(vectors[-1]).all()


def test_one_pass_gives_three_readouts(backbone, many):
    together = SentenceEncoder(
        replace(backbone, model=ThreeReadouts(backbone.model)), PoolingConfig("mean")
    )
    thirds = np.split(together.encode(many, precision="fp32"), 3, axis=1)
    for readout, third in zip(THREE_READOUTS, thirds, strict=True):
        alone = build_features(readout, backbone, precision="fp32")(many)
        np.testing.assert_allclose(third, alone, atol=1e-6, rtol=0)
    assert np.abs(thirds[0] - thirds[1]).max() > 0.1, "premise: they differ"


OPTIONS = {
    "denoise": ("pad", "denoise is 'pad' with the {} readout: denoising needs a"),
    "template": ("denosent", "template is 'denosent' with the {} readout"),
    "frequent_count": (9, "frequent_count is 9 with the {} readout"),
    "top_k": (9, "top_k is 9 with the {} readout, which does not use it"),
    "remove": (("case",), "remove is 'case' with the {} readout"),
}


@pytest.mark.parametrize("readout", FEATURES)
def test_options_of_other_readouts_are_refused(bert_folder, readout):
    backbone = load_backbone(bert_folder)
    for option, (value, fault) in OPTIONS.items():
        if option not in FEATURES[readout].uses:
            with pytest.raises(UserError, match=fault.format(readout)):
                build_features(readout, backbone, FeatureOptions(**{option: value}))
