"""ArcCSE: its two losses and its masked words, against an angle and a sentence at a time."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from made_encoders import with_encoders

from cotbert_core.losses import arc_con
from cotbert_core.methods.arccse import masked_spans
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.batches import Batch
from cotbert_core.training.token_numbers import TokenNumbers
from tests.core import slow_reference
from tests.core.method_table import random_rows
from tests.core.slow_reference import assert_same_step, cosine, exact, tanh_vectors

TEMPERATURE, MARGIN, WEIGHT, TRIPLET_MARGIN, STEP = 0.5, 20.0, 0.7, 0.3, 3
# What all ways of attention have in common is tested in test_attention.
CASES = [("bert", "cls", "auto"), ("roberta", "mean", "unpadded")]
NEXT = [1, 2, 3, 4, 5, 0]


def slow_arc_con(anchors, positives, temperature, margin):
    """By the angles themselves; margin in degrees."""
    total = 0.0
    for i, own in enumerate(anchors):
        angle = torch.acos(cosine(own, positives[i])) + margin * math.pi / 180
        nearer = torch.exp(torch.cos(angle) / temperature)
        others = sum(
            torch.exp(cosine(own, other) / temperature)
            for j, other in enumerate(positives)
            if j != i
        )
        total = total - torch.log(nearer / (nearer + others))
    return total / len(anchors)


def slow_triplet(anchors, nearer, farther, ordered, margin):
    total = 0 * sum(part[0].sum() for part in (anchors, nearer, farther))
    for own, near, far, counts in zip(anchors, nearer, farther, ordered, strict=True):
        if counts:
            total = total + max(cosine(own, far) - cosine(own, near) + margin, 0 * total)
    return total / len(anchors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_and_opposite_and_empty_vectors_have_finite_gradients(dtype):
    """The angle's own gradient is infinite at 0 and 180 degrees."""
    torch.manual_seed(0)
    anchor = torch.randn(4, 6).to(dtype)
    positive = anchor.clone()
    positive[1] *= -1
    anchor[2] = 0
    anchor.requires_grad_()
    loss = arc_con(anchor, positive, temperature=0.05, margin=math.radians(10))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(anchor.grad).all()
    assert not anchor.grad[2].any()
    equal = arc_con(positive[:1], positive[:1], temperature=1.0, margin=0.5)
    assert equal.item() == 0, "alone"


def test_nearly_equal_vectors_have_the_gradient_of_the_angle():
    """A third of a degree apart, in fp32."""
    torch.manual_seed(0)
    anchor, noise = torch.randn(2, 3, 64, dtype=torch.float64)
    positive = anchor + 0.005 * noise
    exactly = anchor.clone().requires_grad_()
    slow_arc_con(exactly, positive, TEMPERATURE, 10.0).backward()
    rounded = anchor.float().requires_grad_()
    margin = math.radians(10)
    arc_con(rounded, positive.float(), temperature=TEMPERATURE, margin=margin).backward()
    distance = (rounded.grad.double() - exactly.grad).norm() / exactly.grad.norm()
    assert distance < 2e-2


@pytest.fixture
def make(make_bare):
    """A method; with a batch its second view is of the batch's augmented texts: another than the
    first view, as dropout makes it."""
    shares = {"less_masked": 0.3, "more_masked": 0.6}
    weights = {"triplet_weight": WEIGHT, "triplet_margin": TRIPLET_MARGIN}
    bare = partial(make_bare, "arccse", temperature=TEMPERATURE, margin=MARGIN, **shares, **weights)

    def build(batch=None, **changes):
        method = bare(**changes)
        if batch is not None:
            encode = method.vectors
            method.vectors = lambda first, _, *masked: encode(first, batch.augmented, *masked)
        return method

    return build


@pytest.fixture
def batch(ids):
    return Batch(ids, ids.take(NEXT))


@with_encoders("readout attention", *CASES)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, batch, ends, readout, attention
):
    method = make(batch, readout=readout, attention=attention)
    head = exact(method.head)
    alone = [method.masked(batch.sentences.take([i])) for i in range(6)]
    texts = [batch.sentences, batch.augmented, *map(concatenate, zip(*alone, strict=True))]
    anchors, positives, nearer, farther = (
        tanh_vectors(exact_model, head, ends, t, readout) for t in texts
    )
    ordered = [left.flat.tolist() != right.flat.tolist() for left, right in alone]
    contrast = slow_arc_con(anchors, positives, TEMPERATURE, MARGIN)
    triplet = slow_triplet(anchors, nearer, farther, ordered, TRIPLET_MARGIN)
    expected = contrast + WEIGHT * triplet
    output = method(batch)
    assert output.parts["contrastive"].item() == pytest.approx(contrast.item(), abs=1e-5)
    assert output.parts["triplet"].item() == pytest.approx(triplet.item(), abs=1e-5)
    assert_same_step(output, expected, (method.encoder, exact_model), (method.head, head))
    assert 2 <= sum(ordered) < 6, "premise"
    assert triplet.item() > 0.05, "premise"
    plain = slow_reference.info_nce(TEMPERATURE, anchors, positives)
    assert contrast.item() - plain.item() > 0.05, "premise"


def test_without_the_triplet_loss_nothing_is_masked(make, batch):
    whole, contrast = make(batch), make(batch, triplet_weight=0.0)
    output = contrast(batch)
    assert output.loss.item() == pytest.approx(whole(batch).parts["contrastive"].item(), abs=1e-6)
    assert set(output.parts) == {"positive_cosine"}
    assert whole.work.tokens == 2 * contrast.work.tokens


@pytest.mark.parametrize("lengths", [[1, 1, 1], [1, 0, 6]])
def test_short_and_empty_sentences(make, lengths):
    """Both texts of one word mask it, so there is no order to learn."""
    method = make()
    special = method.backbone.tokenizer.hf.all_special_ids
    words = np.setdiff1d(np.flatnonzero(~method.continues), special)
    output = method.train()(Batch(Ragged.from_lists([words[:n] for n in lengths])))
    output.loss.backward()
    assert (output.parts["triplet"].item() > 0) == (lengths[2] > 1)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


MASK, CONTINUES = 4, np.arange(10_000) % 3 == 0


def spans(rows, shares=(0.2, 0.4), seed=0, step=0):
    return masked_spans(rows, CONTINUES, MASK, shares, TokenNumbers(rows, seed, step))


def words_of(row):
    """The places of the tokens of each word; the first token always begins one."""
    words = []
    for place, token in enumerate(row):
        if place and CONTINUES[token]:
            words[-1].append(place)
        else:
            words.append([place])
    return words


@pytest.mark.parametrize("shares", [(0.2, 0.4), (0.5, 1.0), (0.01, 0.02)])
def test_whole_words_in_a_row_are_masked_the_fewer_among_the_more(shares):
    rows = random_rows([0, 1, 2, 5, 12, 40])
    for step in range(30):
        less, more = spans(rows, shares, step=step)
        assert less.lengths.tolist() == more.lengths.tolist() == rows.lengths.tolist()
        for i in range(len(rows)):
            words, hidden = words_of(rows[i]), []
            for text, share in zip((less[i], more[i]), shares, strict=True):
                masked = [n for n, word in enumerate(words) if (text[word] == MASK).all()]
                assert masked == list(range(masked[0], masked[0] + len(masked))) if masked else True
                assert len(masked) == min(len(words), max(1, round(share * len(words))))
                kept = [n for n in range(len(rows[i])) if text[n] != MASK]
                assert text[kept].tolist() == rows[i][kept].tolist()
                assert len(rows[i]) - len(kept) == sum(len(words[n]) for n in masked)
                hidden.append(set(masked))
            assert hidden[0] <= hidden[1]


def test_every_span_occurs_as_often():
    times = 3000
    begun = [7, 8, 10, 11, 13, 14, 16, 17, 19]
    rows = Ragged.from_lists([[*begun, 20 + 3 * n] for n in range(times)])
    masked = [text.flat.reshape(times, 10) == MASK for text in spans(rows)]
    fewer, more = (np.bincount(m.argmax(axis=1), minlength=10) / times for m in masked)
    np.testing.assert_allclose(more, [1 / 7] * 7 + [0] * 3, atol=0.03)
    assert (fewer[:9] > 0).all()
