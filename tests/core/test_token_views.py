"""Views of tokens: kinds by hand, top tokens and the projection against slow references."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core.encoder import backbone as backbone_file
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.template_denoising import template_bias
from cotbert_core.errors import UserError
from cotbert_core.readouts.mask_predictions import (
    mask_vectors,
    projection,
    token_kinds,
    token_texts,
    top_tokens,
)
from cotbert_core.readouts.static import begin_words
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.wrapping import BoundTemplate

WORD_PIECES = {
    "the": "word",
    "über": "word",
    "3d": "word",
    "Paris": "capital",
    "iPhone": "capital",
    "##ing": "subword",
    "##ING": "subword",
    "##,": "other",
    "##7": "other",
    ",": "other",
    "1984": "other",
    "#": "other",
    "[CLS]": "other",
    "[unused7]": None,
    "unused7": "word",
}
BYTE_LEVEL = {
    "Ġthe": "word",
    "ĠÃ¼ber": "word",
    "ĠParis": "capital",
    "ĠiPhone": "capital",
    "the": "subword",
    "Paris": "subword",
    "Ġ": "other",
    "Ġ,": "other",
    ".": "other",
    "Ġ1984": "other",
    "Ã": "other",  # half of a letter
    "##ing": "subword",
    "<mask>": "other",
    "covid19": "word",
    "madeupword0001": None,
}

SENTENCE_PIECES = {
    "▁the": "word",
    "▁Paris": "capital",
    "ing": "subword",
    "Ing": "subword",
    "▁": "other",
    "▁1984": "other",
    ",": "other",
    "<mask>": "other",
    "covid19": "word",
}


@pytest.mark.parametrize(
    ("known", "byte_level", "model"),
    [
        (WORD_PIECES, False, {"continuing_subword_prefix": "##"}),
        (BYTE_LEVEL, True, {"continuing_subword_prefix": ""}),
        (SENTENCE_PIECES, False, {}),
        ({"the": "word", "Paris": "capital", ",": "other"}, False, {}),
    ],
)
def test_kinds_of_tokens(known, byte_level, model):
    added = [{"content": "covid19", "special": False}, {"content": "<mask>", "special": True}]
    begin = begin_words(list(known), {"model": model, "added_tokens": added})
    found = token_kinds(list(known), begin, byte_level, ("[CLS]", "<mask>"))
    assert dict(zip(known, found, strict=True)) == known
    kinds = token_kinds(["<mask>"], [False], True)
    assert kinds == ["subword"], "special where the tokenizer says so"


def test_byte_level_tokens_are_shown_as_text():
    tokens = ["Ġthe", "ĠÃ¼", "ing", "Ċ"]
    assert token_texts(tokens, True) == ["the", "ü", "ing", r"'\n'"]
    assert token_texts(["##ing", "Ġ"], False) == ["##ing", "Ġ"]


def test_top_tokens_equal_sorting_each_row():
    logits = torch.randn(4, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits[1, [3, 7, 9]] = 5.0
    rows = [sorted(range(11), key=lambda v: (-float(row[v]), v))[:4] for row in logits]
    found = top_tokens(logits, 4)
    assert found.tolist() == rows
    assert rows[1][:3] == [3, 7, 9]


@pytest.mark.parametrize("top", [0, -1, 12])
def test_top_is_between_1_and_the_vocabulary(top):
    with pytest.raises(UserError, match=rf"^top is {top}: give 1 to 11, the tokens"):
        top_tokens(torch.zeros(2, 11), top)
    assert top_tokens(torch.zeros(2, 11), 11).shape == (2, 11)


@pytest.mark.parametrize("mode", ["position", "pad"])
def test_no_batch_of_mask_vectors_or_biases_is_larger_than_the_backbones(
    encoder_folder, sentences, family, monkeypatch, mode
):
    monkeypatch.setattr(backbone_file, "CPU_BATCH_TOKENS", 60)
    backbone, sizes = load_backbone(encoder_folder), []
    template = BoundTemplate.bind(TEMPLATES[f"{family}/anchor"], backbone.tokenizer.hf)
    ids = backbone.tokenizer(sentences, 32)
    backbone.model.embeddings.register_forward_hook(
        lambda module, given, out: sizes.append(out.shape[0] * out.shape[1])
    )
    with torch.inference_mode():
        mask_vectors(backbone, template, ids, mode)
    assert len(set(ids.lengths.tolist())) > 3, "premise: a bias for each length"
    assert len(sizes) > 3
    assert max(sizes) <= 60


@pytest.mark.parametrize("mode", ["none", "position", "pad"])
def test_mask_vectors_are_read_at_the_last_mask(encoder_folder, family, sentences, mode):
    """Against one row at a time through the model itself."""
    backbone = load_backbone(encoder_folder)
    template = BoundTemplate.bind(TEMPLATES[f"{family}/anchor"], backbone.tokenizer.hf)
    ids = backbone.tokenizer(sentences, 32)
    with torch.inference_mode():
        found = mask_vectors(backbone, template, ids, mode)
        for number in range(len(ids)):
            row = [*template.before, *ids[number].tolist(), *template.after]
            last = max(i for i, token in enumerate(row) if token == template.mask_id)
            hidden = backbone.model(torch.tensor([row])).last_hidden_state[0, last]
            bias = template_bias(backbone, template, np.array([len(ids[number])]), mode)[0]
            torch.testing.assert_close(found[number], hidden - bias, atol=1e-5, rtol=1e-5)
        assert (mode == "none") == (float(bias.abs().max()) == 0)


def test_projection_equals_the_singular_values():
    random = np.random.default_rng(1)
    table = random.normal(size=(40, 6)) * [5, 1, 3, 0.5, 0.2, 0.1] + 7
    points, shares = projection(table)
    centred = table - table.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :2] * singular[:2]
    for axis in range(2):
        sign = np.sign(points[0, axis] * expected[0, axis])
        np.testing.assert_allclose(points[:, axis], sign * expected[:, axis], atol=1e-9)
    np.testing.assert_allclose(shares, singular[:2] ** 2 / (singular**2).sum(), rtol=1e-12)
    for axis in range(2):  # the sign of a component does not matter
        weights = centred.T @ points[:, axis]  # along the component
        assert weights[np.abs(weights).argmax()] > 0
    np.testing.assert_allclose(projection(-table)[0], -points, atol=1e-9)


def test_projection_is_exact_for_single_precision():
    """A large mean and small differences, which float32 sums would lose."""
    table = np.random.default_rng(3).normal(size=(2000, 4)) * [1, 0.3, 0.1, 0.01] + 1000
    single = table.astype(np.float32)
    points, shares = projection(single)
    assert points.dtype == np.float64
    exact = single.astype(np.float64)
    singular = np.linalg.svd(exact - exact.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(shares, singular[:2] ** 2 / (singular**2).sum(), rtol=1e-9)
