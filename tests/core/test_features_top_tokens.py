"""Top-k tokens of the mask (PromptBERT eq. 3) against the formula, a token at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from cotbert_core import TEMPLATES, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.template_denoising import template_bias
from cotbert_core.readouts import build_features
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.templates.wrapping import BoundTemplate


@pytest.fixture
def manual(family):
    """The name of the template that is used by default."""
    return "promptbert/manual" if family == "cot-bert" else "promptroberta/anchor"


@pytest.fixture
def head_folder(encoder_folder, tmp_path, with_mlm_head):
    """The output weights are not the input's, so one cannot be mistaken for the other."""
    return with_mlm_head(encoder_folder, tmp_path, tied=False)


@pytest.fixture
def backbone(head_folder):
    return load_backbone(head_folder)


@pytest.fixture
def slow(head_folder, backbone):
    """Eq. (3) in float64: exp of all logits, the k largest one by one, their weighted sum."""
    whole = AutoModelForMaskedLM.from_pretrained(head_folder, dtype=torch.float64).eval()
    body = whole.bert if hasattr(whole, "bert") else whole.roberta
    head = whole.cls if hasattr(whole, "cls") else whole.lm_head
    table = body.embeddings.word_embeddings.weight.detach().numpy()
    tokenizer = backbone.tokenizer.hf

    def features(texts, template, top_k, denoise="none"):
        bound = BoundTemplate.bind(TEMPLATES[template], tokenizer)
        vectors = []
        for text in texts:
            text += "" if text[-1] in ".?\"'" else "."
            filled = TEMPLATES[template].text.replace("[X]", text)
            ids = tokenizer(filled.replace("[MASK]", tokenizer.mask_token))["input_ids"]
            with torch.no_grad():
                hidden = body(input_ids=torch.tensor([ids])).last_hidden_state[0]
                mask = hidden[ids.index(tokenizer.mask_token_id)]
                tokens = len(ids) - bound.length
                mask = mask - template_bias(backbone, bound, np.array([tokens]), denoise)[0]
                logits = head(mask).numpy()
            probability = np.exp(logits) / np.exp(logits).sum()
            best = sorted(range(len(logits)), key=lambda v: -probability[v])[:top_k]
            top = sum(table[v] * probability[v] for v in best)
            vectors.append(top / sum(probability[v] for v in best))
        return np.array(vectors)

    return features


@pytest.mark.parametrize(
    ("top_k", "denoise"), [(1, "none"), (7, "position"), (100, "pad"), (7, "pad")]
)
def test_vectors_follow_equation_3(backbone, slow, sentences, manual, top_k, denoise):
    options = FeatureOptions(top_k=top_k, denoise=denoise)
    features = build_features("top-tokens", backbone, options, precision="fp32")
    expected = slow(sentences, manual, top_k, denoise)
    np.testing.assert_allclose(features(sentences), expected, atol=1e-5, rtol=0)
    assert expected.std(axis=0).mean() > 1e-3, "premise: sentences differ"


def test_a_template_as_name_text_or_template(backbone, slow, sentences, family):
    name = f"{family}/only-prefix/anchor"
    expected = slow(sentences, name, 9)
    for template in (name, TEMPLATES[name].text, TEMPLATES[name]):
        options = FeatureOptions(top_k=9, template=template)
        features = build_features("top-tokens", backbone, options, precision="fp32")
        np.testing.assert_allclose(features(sentences), expected, atol=1e-5, rtol=0)


def test_more_sentences_than_logits_are_held(backbone, sentences, monkeypatch):
    options = FeatureOptions(top_k=9)
    features = build_features("top-tokens", backbone, options, precision="fp32")
    whole = features(sentences)
    monkeypatch.setattr("cotbert_core.readouts.top_tokens.LOGIT_ROWS", 4)
    np.testing.assert_allclose(features(sentences), whole, atol=1e-6)
    assert features([]).shape == (0, 32)


def test_a_row_after_the_last_token_is_no_token(encoder_folder, sentences, with_mlm_head, tmp_path):
    folder = with_mlm_head(encoder_folder, tmp_path / "tied")
    model = AutoModelForMaskedLM.from_pretrained(folder)
    options = FeatureOptions(top_k=model.config.vocab_size)
    whole = build_features("top-tokens", load_backbone(folder), options, precision="fp32")
    expected = whole(sentences)
    model.resize_token_embeddings(model.config.vocab_size + 40, mean_resizing=False)
    model.save_pretrained(folder)
    padded = build_features("top-tokens", load_backbone(folder), options, precision="fp32")
    np.testing.assert_allclose(padded(sentences), expected, atol=1e-5)


@pytest.mark.parametrize("top_k", [0, -1, 10**6])
def test_a_k_outside_the_vocabulary_is_refused(backbone, top_k):
    size = len(backbone.model.embeddings.word_embeddings.weight)
    with pytest.raises(UserError, match=f"top_k is {top_k}: give 1 to {size}"):
        build_features("top-tokens", backbone, FeatureOptions(top_k=top_k))
