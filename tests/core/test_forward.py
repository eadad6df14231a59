"""Rows in several batches against all in one: the same vectors and gradients."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.wrapping import BoundTemplate
from tests.core.slow_reference import gradients


@pytest.fixture
def encoded(encoder_folder, family, sentences):
    """The vectors, the gradients of the weights, and what was asked of the word embeddings."""

    def run(batch_tokens, mini_batch_size=None):
        torch.manual_seed(0)
        backbone = load_backbone(encoder_folder, dropout=0.0)
        backbone.model.train()
        template = BoundTemplate.bind(TEMPLATES[f"{family}/anchor"], backbone.tokenizer.hf)
        rows = template.wrap(backbone.tokenizer(sentences, 16))
        asked = []
        table = backbone.model.get_input_embeddings()
        table.register_forward_pre_hook(lambda _, inputs: asked.append(inputs[0]))
        vectors = encode_rows(backbone, rows, "mask", batch_tokens, mini_batch_size=mini_batch_size)
        # The length of a normed vector is always the same, and has no gradient.
        along = torch.randn(vectors.shape[1], generator=torch.Generator().manual_seed(1))
        (vectors @ along).square().sum().backward()
        return vectors.detach(), gradients(backbone.model), asked, rows

    return run


@pytest.mark.parametrize("mini_batch_size", [None, 2])
def test_words_are_looked_up_once_for_all_batches(encoded, mini_batch_size):
    vectors, found, asked, rows = encoded(40, mini_batch_size)
    assert len(asked) == 1
    assert asked[0].tolist() == sorted(set(rows.ids.flatten().tolist()))
    whole_vectors, whole, whole_asked, _ = encoded(None)
    assert whole_asked[0].shape == rows.ids.shape, "premise: one batch of all rows"
    torch.testing.assert_close(vectors, whole_vectors, rtol=0, atol=1e-6)
    assert found.keys() == whole.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-4)
    words = next(g for name, g in whole.items() if "word_embeddings" in name)
    assert words.abs().max() > 1e-2, "premise: words are learnt"
