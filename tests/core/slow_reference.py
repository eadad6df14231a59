"""Vectors, biases, heads and losses from the formulas: a sentence and a pair at a time, float64.

Letters: n tokens of a sentence, D hidden size. `model` is a transformers model in float64, run on
one row without padding; gradients flow into its weights.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method

FIRST_POSITION = {"bert": 0, "roberta": 2}


def last_mask(bound, ids):
    return max(j for j, token in enumerate(ids) if token == bound.mask_id)


def hidden(model, ids, positions=None):
    """(L, D) of one row; positions count from 0."""
    start = FIRST_POSITION[model.config.model_type]
    given = None if positions is None else torch.tensor([positions]) + start
    return model(
        input_ids=torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        position_ids=given,
    ).last_hidden_state[0]


def embedded(model, ids):
    """(1, L, D) of one row before the layers."""
    positions = torch.arange(len(ids))[None] + FIRST_POSITION[model.config.model_type]
    return model.embeddings(input_ids=torch.tensor([ids]), position_ids=positions)


def plain_vectors(model, ends, sentences, readout):
    """List of (D,): each row between the special tokens alone."""
    found = []
    for sentence in sentences:
        row = [ends[0], *(int(token) for token in sentence), ends[1]]
        states = hidden(model, row)
        found.append(states[0] if readout == "cls" else states.mean(dim=0))
    return found


def mask_vector(model, bound, sentence):
    """(D,) at the last mask of the filled template."""
    ids = [*bound.before, *(int(token) for token in sentence), *bound.after]
    return hidden(model, ids)[last_mask(bound, ids)]


def bias(model, bound, n, mode, pad_positions="aligned"):
    """(D,) of the empty template for a sentence of n tokens."""
    first, second = list(bound.before), list(bound.after)
    if mode == "pad":
        ids = first + [bound.pad_id] * n + second
        positions = list(range(len(ids)))
    else:
        ids = first + second
        positions = [*range(len(first)), *(len(first) + n + j for j in range(len(second)))]
    if pad_positions == "released":  # by transformers, which skips pads, or counted from 0
        start = FIRST_POSITION[model.config.model_type]
        positions = None if mode == "pad" else [place - start for place in positions]
    return hidden(model, ids, positions)[last_mask(bound, ids)]


def tanh_head(head, vector):
    return torch.tanh(head.dense.weight @ vector + head.dense.bias)


def transform_head(head, vector):
    """Dense, GELU, layer norm."""
    inner = head.dense.weight @ vector + head.dense.bias
    active = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    spread = ((active - active.mean()) ** 2).mean()
    unit = (active - active.mean()) / torch.sqrt(spread + head.norm.eps)
    return unit * head.norm.weight + head.norm.bias


def apply_head(head, vector, taken):
    """tanh: head(h - b); transform: head(h) - head(b). `taken` is b, or None without denoising."""
    if hasattr(head, "norm"):
        whole = transform_head(head, vector)
        return whole if taken is None else whole - transform_head(head, taken)
    return tanh_head(head, vector if taken is None else vector - taken)


def vectors(model, head, bound, sentences, mode, *, frozen=False):
    """List of (D,): each sentence in its template, denoised, behind the head (None: none).

    frozen: whether the bias has no gradient.
    """
    found = []
    for sentence in sentences:
        vector = mask_vector(model, bound, sentence)
        taken = None if mode == "none" else bias(model, bound, len(sentence), mode)
        taken = taken.detach() if frozen else taken
        if head is not None:
            vector = apply_head(head, vector, taken)
        elif taken is not None:
            vector = vector - taken
        found.append(vector)
    return found


def cosine(u, v):
    return u @ v / (u.norm() * v.norm())


def power(temperature, u, v):
    """a(u, v) of the papers."""
    return torch.exp(cosine(u, v) / temperature)


def info_nce(temperature, anchor, positive, negative=(), extended=False):
    """Mean over i of -log a(i,i+) / sum_j [a(i,j+) + a(i,j-)]; extended: and a(i+,j-)."""
    total = 0.0
    for i, own in enumerate(anchor):
        below = sum(power(temperature, own, other) for other in [*positive, *negative])
        if extended:
            below = below + sum(power(temperature, positive[i], other) for other in negative)
        total = total - torch.log(power(temperature, own, positive[i]) / below)
    return total / len(anchor)


def tanh_vectors(model, head, ends, sentences, readout):
    """List of (D,): each bare row behind a tanh head."""
    return [tanh_head(head, raw) for raw in plain_vectors(model, ends, sentences, readout)]


def exact(module):
    """A copy in float64, with gradients of its own."""
    return copy.deepcopy(module).double()


def gradients(module):
    """Copies of all gradients by the weights' names."""
    return {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


def assert_same_step(output, expected, *twins):
    """The same loss, and the same gradients of the weights of each module and its slow twin."""
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    output.loss.backward()
    expected.backward()
    for module, slow in twins:
        assert_same_gradients(module, slow)


def wide_head(settings, folder=None):
    """The method of some settings, with a head wide enough to matter."""
    torch.manual_seed(1)
    backbone = load_backbone(
        folder or settings.encoder, dropout=settings.dropout, attention=settings.attention
    )
    method = build_method(backbone, settings)
    head = method.kept_head or method.head
    # A head of std 0.02 leaves vectors so short that cosines are all that is left of them.
    if hasattr(head, "dense"):
        torch.nn.init.normal_(head.dense.weight, std=0.3)
    return method


def assert_same_gradients(module, slow):
    """Of every weight that has one, in a module and in its slow twin."""
    found, wanted = gradients(module), gradients(slow)
    assert found.keys() == wanted.keys()
    assert found
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name].double(), gradient, atol=1e-5, rtol=1e-3, msg=name)
    assert max(g.abs().max() for g in wanted.values()) > 1e-2, "premise: there is something"
