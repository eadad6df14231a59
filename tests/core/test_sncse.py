"""SNCSE: loss and gradients against a sentence at a time, and the margins by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_encoders import with_encoders

from cotbert_core.losses import bidirectional_margin, paired_cosines
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_step, cosine, exact, wide_head

TEMPERATURE, ALPHA, BETA, WEIGHT = 0.5, 0.15, 0.16, 0.7


@pytest.fixture
def make(encoder_folder, tiny_settings, prompts):
    def build(**changes):
        given = {"name": "sncse", "alpha": ALPHA, "beta": BETA, "margin_weight": WEIGHT}
        few = {f"method.{name}": value for name, value in given.items()}
        # The order of the recipe: SNCSE's anchor is PromptBERT's positive.
        few |= {
            "templates.anchor": f"{prompts}/positive",
            "templates.positive": f"{prompts}/anchor",
        }
        return wide_head(
            tiny_settings(encoder_folder, {**few, "templates.negative": None, **changes})
        )

    return build


def slow_margin(anchors, positives, negatives, alpha, beta):
    total = 0.0
    for anchor, positive, negative in zip(anchors, positives, negatives, strict=True):
        delta = cosine(anchor, negative) - cosine(anchor, positive)
        total = total + max(delta + alpha, 0 * delta) + max(-delta - beta, 0 * delta)
    return total / len(anchors)


@with_encoders("attention mini_batch_size", ("bert", "auto", None), ("roberta", "unpadded", 4))
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
    for name, others in zip(("positive_cosine", "negative_cosine"), views[1:], strict=True):
        similar = sum(map(cosine, views[0], others)) / len(ids)
        assert output.parts[name].item() == pytest.approx(similar.item(), abs=1e-5)
    assert margin.item() > 1e-2, "premise"
    unchanged = slow_margin(*views[:2], views[1], ALPHA, BETA)
    assert abs(margin.item() - unchanged.item()) > 1e-3, "premise: the negation differs"
    assert_same_step(output, expected, (method.encoder, exact_model), (method.head, head))


@pytest.mark.parametrize(
    ("similar", "loss"), [(1.0, 0.1), (0.95, 0.05), (0.9, 0.0), (0.8, 0.0), (0.7, 0.0), (0.5, 0.2)]
)
def test_the_margins_by_hand(similar, loss):
    """The positive's cosine is 1, so the negation's is to be between 0.7 and 0.9."""
    anchor = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    negative = torch.tensor([[similar, (1 - similar**2) ** 0.5]], dtype=torch.float64)
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


def test_a_negation_never_exceeds_the_encoder(make):
    method = make()
    room = method.backbone.max_tokens - method.positive.length
    rows = Ragged.from_lists([np.full(room, 7), np.full(room - 1, 9), []])
    assert max(method.negation(rows).lengths) > room, "premise"
    assert torch.isfinite(method(Batch(rows)).loss)
