"""SNCSE: loss and gradients against a sentence at a time, and the margins by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.losses import bidirectional_margin, paired_cosines
from cotbert_core.methods import build_method
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact

TEMPERATURE, ALPHA, BETA, WEIGHT = 0.5, 0.15, 0.16, 0.7


@pytest.fixture
def make(encoder_folder, tiny_settings, family):
    prefix = "promptroberta" if family == "cot-roberta" else "promptbert"

    def build(**changes):
        given = {"name": "sncse", "alpha": ALPHA, "beta": BETA, "margin_weight": WEIGHT}
        flat = ("dropout", "attention", "mini_batch_size")
        few = {f"method.{name}": value for name, value in given.items()}
        few |= {k if k in flat else f"method.{k}": v for k, v in changes.items()}
        # The order of the recipe: SNCSE's anchor is PromptBERT's positive.
        few |= {"templates.anchor": f"{prefix}/positive", "templates.positive": f"{prefix}/anchor"}
        settings = tiny_settings(encoder_folder, few | {"templates.negative": None})
        torch.manual_seed(1)
        backbone = load_backbone(
            encoder_folder, attention=settings.attention, dropout=settings.dropout
        )
        method = build_method(backbone, settings)
        torch.nn.init.normal_(method.head.dense.weight, std=0.3)
        return method

    return build


def slow_margin(anchors, positives, negatives, alpha, beta):
    total = 0.0
    for anchor, positive, negative in zip(anchors, positives, negatives, strict=True):
        delta = cosine_similarity(anchor, negative, dim=0) - cosine_similarity(
            anchor, positive, dim=0
        )
        total = total + max(delta + alpha, 0 * delta) + max(-delta - beta, 0 * delta)
    return total / len(anchors)


@pytest.mark.parametrize(
    ("attention", "mini_batch_size"),
    [("auto", None), ("eager", None), ("sdpa", 4), ("unpadded", 4)],
)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, ids, attention, mini_batch_size
):
    method = make(attention=attention, mini_batch_size=mini_batch_size)
    head, negated = exact(method.head), method.negation(ids)
    views = [
        slow_reference.vectors(exact_model, head, bound, texts, "none")
        for bound, texts in (
            (method.anchor, ids),
            (method.positive, ids),
            (method.positive, negated),
        )
    ]
    contrast = slow_reference.info_nce(TEMPERATURE, *views[:2])
    margin = slow_margin(*views, ALPHA, BETA)
    expected = contrast + WEIGHT * margin
    output = method(Batch(ids))
    assert output.parts["margin"].item() == pytest.approx(margin.item(), abs=1e-5)
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert margin.item() > 1e-2, "premise"
    unchanged = slow_margin(*views[:2], views[1], ALPHA, BETA)
    assert abs(margin.item() - unchanged.item()) > 1e-3, "premise: the negation differs"
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.encoder, exact_model)
    assert_same_gradients(method.head, head)


@pytest.mark.parametrize(
    ("cosine", "loss"), [(1.0, 0.1), (0.95, 0.05), (0.9, 0.0), (0.8, 0.0), (0.7, 0.0), (0.5, 0.2)]
)
def test_the_margins_by_hand(cosine, loss):
    """The positive's cosine is 1, so the negation's is to be between 0.7 and 0.9."""
    anchor = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    negative = torch.tensor([[cosine, (1 - cosine**2) ** 0.5]], dtype=torch.float64)
    found = bidirectional_margin(anchor, 3 * anchor, 5 * negative, alpha=0.1, beta=0.3)
    assert found.item() == pytest.approx(loss, abs=1e-12)


def test_paired_cosines_are_torch_s_and_fp32_or_better():
    torch.manual_seed(0)
    left, right = torch.randn(2, 4, 3, 5)
    expected = torch.cosine_similarity(left, right, dim=-1)
    torch.testing.assert_close(paired_cosines(left, right), expected)
    torch.testing.assert_close(
        paired_cosines(left[:, :1], right), torch.cosine_similarity(left[:, :1], right, dim=-1)
    )
    assert paired_cosines(left.bfloat16(), right.bfloat16()).dtype == torch.float32
    assert paired_cosines(torch.zeros(1, 5), right[0, :1]).item() == 0


@pytest.mark.parametrize(
    "changes",
    [{"alpha": 0.0}, {"beta": 1.0}, {"margin_weight": 0.0}, {"temperature": 0.1}],
    ids=str,
)
def test_every_setting_matters(make, ids, changes):
    losses = [make(**given)(Batch(ids)).loss.item() for given in ({}, changes)]
    assert abs(losses[0] - losses[1]) > 1e-4


def test_all_three_views_are_encoded_together(make, ids, monkeypatch):
    method, calls = make(), []
    real = method._encode_rows
    monkeypatch.setattr(method, "_encode_rows", lambda rows: calls.append(len(rows)) or real(rows))
    output = method(Batch(ids))
    assert calls == [3]
    names = {"positive_cosine", "negative_cosine", "contrastive", "margin"}
    assert output.parts.keys() == names
    assert not any(part.requires_grad for part in output.parts.values())


def test_a_negation_never_exceeds_the_encoder(make):
    method = make()
    room = method.backbone.max_tokens - method.positive.length
    rows = Ragged.from_lists([np.full(room, 7), np.full(room - 1, 9), []])
    assert max(method.negation(rows).lengths) > room, "premise"
    assert torch.isfinite(method(Batch(rows)).loss)


def test_the_head_is_dropped_and_the_anchor_is_read(make):
    method = make()
    assert method.kept_head is None
    assert method.pooling.template == method.template("anchor")
    assert (method.pooling.readout, method.pooling.method) == ("mask", "sncse")
    assert method.notes(["negative"]) == ["method sncse does not use the corpus's negative texts"]
