"""Contrastive losses against loops written from the formulas, and one rank of two simulated."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.errors import UserError
from cotbert_core.losses import (
    energy_hinge,
    extended_info_nce,
    info_nce,
    paired_cosines,
    same_document,
)
from tests.core.slow_reference import power

B, D, TEMPERATURE = 6, 5, 0.3
# Number of inputs, the loss, whether a(i,j-) and a(i+,j-) are in the denominator.
LOSSES = {
    "info_nce": (2, info_nce, False, False),
    "info_nce with negatives": (3, info_nce, True, False),
    "extended": (3, extended_info_nce, True, True),
}
# The documents of the rows: two pairs, one of them across the two halves of the batch.
DOCUMENTS = torch.tensor([5, 2**62, 5, 7, 2**62, 8])
every_loss = pytest.mark.parametrize("kind", LOSSES)


def vectors(count, rows=B, dtype=torch.float64):
    made = torch.randn(count, rows, D, generator=torch.Generator().manual_seed(1)).to(dtype)
    return [v.clone().requires_grad_() for v in made]


def slow_loss(kind, anchor, positive, negative=(), temperature=TEMPERATURE, documents=range(B)):
    """Each row against those of other documents and itself alone."""
    _, _, with_negative, extended = LOSSES[kind]
    total = 0
    for i in range(len(anchor)):
        counted = [j for j in range(len(anchor)) if j == i or documents[j] != documents[i]]
        below = sum(power(temperature, anchor[i], positive[j]) for j in counted)
        if with_negative:
            below = below + sum(power(temperature, anchor[i], negative[j]) for j in counted)
        if extended:
            below = below + sum(power(temperature, positive[i], negative[j]) for j in counted)
        total = total - torch.log(power(temperature, anchor[i], positive[i]) / below)
    return total / len(anchor)


def assert_same(loss, inputs, expected, exact):
    """The same value and, where there are any, the same gradients."""
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    found, wanted = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, exact)
    for own, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(own.double(), other, atol=1e-5, rtol=0)
        assert other.abs().max() > 1e-3, "premise: there is a gradient to compare"


@every_loss
@pytest.mark.parametrize("norm", [0.0, 1e-6])
def test_a_vector_without_a_direction_gets_no_gradient_and_spoils_none(kind, norm):
    """What is left of an empty sentence minus its own bias: nothing, or rounding."""
    count, loss, *_ = LOSSES[kind]
    inputs = vectors(count)
    with torch.no_grad():
        for vector in inputs:
            vector[2] *= norm / vector[2].norm()
    value = loss(*inputs, temperature=TEMPERATURE)
    assert value.isfinite()
    for gradient in torch.autograd.grad(value, inputs):
        assert not gradient[2].any(), "a gradient of up to 1e12 where its length divides"
        assert 0 < gradient.norm() < 10


def test_what_is_not_a_number_is_not_hidden():
    anchor, positive = vectors(2)
    with torch.no_grad():
        anchor[2] = float("nan")
    assert info_nce(anchor, positive, temperature=TEMPERATURE).isnan()


@every_loss
@pytest.mark.parametrize(
    ("dtype", "temperature"), [(torch.float64, 0.05), (torch.float32, 0.3)], ids=str
)
def test_loss_and_gradient_equal_the_loops(kind, dtype, temperature):
    count, loss, *_ = LOSSES[kind]
    inputs, exact = vectors(count, dtype=dtype), vectors(count)
    fast = loss(*inputs, temperature=temperature)
    slow = slow_loss(kind, *exact, temperature=temperature)
    assert fast.dtype == dtype
    assert_same(fast, inputs, slow, exact)


@every_loss
def test_other_rows_of_a_document_are_in_no_denominator(kind):
    count, loss, *_ = LOSSES[kind]
    inputs = vectors(count)
    fast = loss(*inputs, temperature=TEMPERATURE, exclude=same_document(DOCUMENTS, DOCUMENTS))
    assert_same(fast, inputs, slow_loss(kind, *inputs, documents=DOCUMENTS.tolist()), inputs)
    plain = loss(*inputs, temperature=TEMPERATURE)
    assert plain - fast > 1e-2, "each row of a pair has one column less"
    apart = same_document(torch.arange(B), torch.arange(B))
    assert loss(*inputs, temperature=TEMPERATURE, exclude=apart).equal(plain)


def test_a_batch_of_one_document_has_nothing_to_learn_and_no_nan():
    inputs = vectors(2)
    loss = info_nce(*inputs, temperature=0.05, exclude=same_document(torch.ones(B), torch.ones(B)))
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(loss, inputs))


@every_loss
@pytest.mark.parametrize("temperature", [0.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(kind, temperature):
    count, loss, *_ = LOSSES[kind]
    with pytest.raises(UserError, match="temperature is"):
        loss(*vectors(count), temperature=temperature)


def test_an_anchor_without_a_positive_is_refused():
    """With negatives it would be trained towards one of those."""
    anchor, positive, negative = vectors(3)
    with pytest.raises(UserError, match="anchor has 6 rows and positive 4: give each anchor its"):
        info_nce(anchor, positive[:4], negative, temperature=TEMPERATURE)


def test_bf16_vectors_are_compared_in_fp32():
    inputs = [v.bfloat16() for v in vectors(2)]
    with torch.autocast("cpu", torch.bfloat16):
        loss = info_nce(*inputs, temperature=0.05)
    exact = info_nce(*[v.double() for v in inputs], temperature=0.05)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), abs=1e-5)
    paired = paired_cosines(*inputs)
    assert paired.dtype == torch.float32
    mixed = (inputs[0].float(), inputs[1])
    assert info_nce(*mixed, temperature=0.05).item() == pytest.approx(exact.item(), abs=1e-5)
    assert paired_cosines(*mixed).equal(paired)
    torch.testing.assert_close(paired.double(), paired_cosines(*[v.double() for v in inputs]))


@every_loss
@pytest.mark.parametrize("documents", [None, DOCUMENTS])
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_together_have_the_loss_and_gradient_of_one(kind, workers, documents):
    count, loss, *_ = LOSSES[kind]
    inputs = vectors(count)
    exclude = None if documents is None else same_document(documents, documents)
    whole = loss(*inputs, temperature=TEMPERATURE, exclude=exclude)
    # Each worker's own rows of each input, as leaves of their own.
    parts = [
        [v.detach().chunk(workers)[rank].clone().requires_grad_() for v in inputs]
        for rank in range(workers)
    ]
    gathered = [torch.cat(columns) for columns in zip(*(p[1:] for p in parts), strict=True)]
    losses = []
    for rank, (anchor, *_) in enumerate(parts):
        first = rank * B // workers
        if documents is not None:
            exclude = same_document(documents.chunk(workers)[rank], documents, first)
        given = {"temperature": TEMPERATURE, "first": first, "exclude": exclude}
        losses.append(loss(anchor, *gathered, **given))
    mean = sum(losses) / workers
    assert mean.item() == pytest.approx(whole.item())
    assert abs(losses[0].item() - whole.item()) > 1e-3, "premise: no rank alone has the mean"
    # The backward of the gathering sums each rank's gradient; DDP then divides by the workers.
    mean.backward()
    for i, expected in enumerate(torch.autograd.grad(whole, inputs)):
        torch.testing.assert_close(torch.cat([p[i].grad for p in parts]), expected)


def test_a_rows_own_positive_is_not_its_hardest_negative():
    one = torch.eye(4)[:3]
    negative = torch.eye(4)[3:].expand(3, -1)
    assert energy_hinge(one, one, negative, margin=0.5).item() == 0.0


def test_the_hinge_has_the_hardest_of_other_positives_and_all_negatives():
    """PromCSE's own test has each text as a positive and as a negative."""
    anchor, positive, negative = torch.randn(3, B, D, generator=torch.Generator().manual_seed(0))
    anchor, first, total = anchor[2:5], 2, 0.0
    found = set()
    for row, own in enumerate(anchor, first):
        far = [torch.cosine_similarity(own, v, dim=0).item() for v in (*positive, *negative)]
        hardest = max((c, n >= B) for n, c in enumerate(far) if n != row)
        found.add(hardest[1])
        total += max(0.0, 0.9 + hardest[0] - far[row]) / 3
    assert found == {True, False}, "premise: a negative is the hardest, and another positive"
    loss = energy_hinge(anchor, positive, negative, margin=0.9, first=first)
    assert loss.item() == pytest.approx(total)
