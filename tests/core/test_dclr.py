"""DCLR: noise as negatives, false negatives left out, against a sentence and a pair at a time."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.errors import UserError
from cotbert_core.methods.dclr import false_negatives, gaussian, moved_noise
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact, plain_vectors, wide_head

TEMPERATURE, STEP, STEPS, STEP_SIZE = 0.5, 3, 3, 2.0
NONE = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
# What all ways of attention have in common is tested in test_attention.
CASES = [("cls", "auto"), ("mean", "plain"), ("cls", "unpadded"), ("mean", "unpadded")]


@pytest.fixture(scope="module")
def complements(tmp_path_factory):
    """Of each encoder: another one of the same tokenizer, read by its means."""

    @functools.cache
    def make(encoder_folder):
        backbone = load_backbone(encoder_folder)
        torch.manual_seed(1)
        with torch.no_grad():
            for weight in backbone.model.parameters():
                weight += 0.1 * torch.randn_like(weight)
        folder = tmp_path_factory.mktemp("complement") / Path(encoder_folder).name
        SentenceEncoder(backbone, PoolingConfig("mean", blank=True)).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture
def complement(encoder_folder, complements):
    return complements(encoder_folder)


SIMILAR = {}


@pytest.fixture
def similar(complement, ids, ends):
    """The complement's cosines (6, 6), of vectors of a sentence at a time."""
    if complement not in SIMILAR:
        with torch.no_grad():
            model = exact(load_backbone(complement).model)
            vectors = plain_vectors(model, ends, ids, "mean")
        rows = [[cosine_similarity(u, v, dim=0).item() for v in vectors] for u in vectors]
        SIMILAR[complement] = np.array(rows)
    return SIMILAR[complement]


@pytest.fixture
def threshold(similar):
    """Between the middle two of the fifteen pairs' cosines."""
    pairs = np.sort(similar[np.triu_indices(6, 1)])
    return float(pairs[6:8].mean())


@pytest.fixture
def make(encoder_folder, tiny_settings, complement, threshold):
    def build(**changes):
        given = {
            "name": "dclr",
            "temperature": TEMPERATURE,
            "noise": 1.5,
            "noise_steps": STEPS,
            "noise_step_size": STEP_SIZE,
            "complement": complement,
            "threshold": threshold,
        }
        flat = ("dropout", "attention", "mini_batch_size", "seed")
        changes = {k if k in flat else f"method.{k}": v for k, v in changes.items()}
        given = {f"method.{name}": value for name, value in given.items()}
        settings = tiny_settings(encoder_folder, {"batch_size": 6, **given, **NONE, **changes})
        method = wide_head(settings)
        method.step = STEP
        return method

    return build


def a(u, v, temperature=TEMPERATURE):
    return torch.exp(u @ v / (u.norm() * v.norm()) / temperature)


def slow_moved(noise, anchors, steps, step_size):
    """A vector at a time, by torch's own gradient of the objective."""
    noise = [v.detach().clone().requires_grad_() for v in noise]
    for _ in range(steps):
        total = sum(torch.log(sum(a(u, v) for v in noise)) for u in anchors) / len(anchors)
        gradients = torch.autograd.grad(total, noise)
        noise = [
            (v + step_size * g / g.norm()).detach().requires_grad_()
            for v, g in zip(noise, gradients, strict=True)
        ]
    return [v.detach() for v in noise]


def slow_loss(anchors, noise, negatives):
    """negatives: whether sentence j is a negative of i."""
    total = 0.0
    for i, own in enumerate(anchors):
        below = sum(a(own, other) for j, other in enumerate(anchors) if j == i or negatives[i][j])
        total = total - torch.log(a(own, own) / (below + sum(a(own, v) for v in noise)))
    return total / len(anchors)


@pytest.mark.parametrize(("readout", "attention"), CASES)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, ids, ends, similar, threshold, readout, attention
):
    """Without dropout the views of a sentence are equal."""
    method = make(readout=readout, attention=attention)
    head = exact(method.head)
    vectors = [
        slow_reference.tanh_head(head, v) for v in plain_vectors(exact_model, ends, ids, readout)
    ]
    fixed = [v.detach() for v in vectors]
    drawn = [torch.from_numpy(v).double() for v in gaussian(9, 32, 0, STEP)]
    noise = slow_moved(drawn, fixed, STEPS, STEP_SIZE)
    expected = slow_loss(vectors, noise, similar < threshold)
    output = method(Batch(ids))
    output.loss.backward()
    expected.backward()
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert_same_gradients(method.encoder, exact_model)
    assert_same_gradients(method.head, head)
    assert output.parts["left_out"].item() == pytest.approx(16 / 36)
    others = (drawn, similar < threshold), (noise, similar < 2), ([], similar < threshold)
    for wrong in others:
        assert abs(slow_loss(fixed, *wrong).item() - expected.item()) > 1e-2, "premise"


def test_noise_climbs_as_torch_s_gradient_says():
    torch.manual_seed(0)
    noise, anchors = (torch.randn(n, 6, dtype=torch.float64) for n in (5, 4))
    given = {"temperature": TEMPERATURE, "steps": STEPS, "step_size": 0.3}
    found = moved_noise(noise, anchors, **given)
    expected = torch.stack(slow_moved(list(noise), anchors, STEPS, 0.3))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)

    def crowding(vectors):
        return sum(torch.log(sum(a(u, v) for v in vectors)) for u in anchors).item()

    path = [crowding(moved_noise(noise, anchors, **given | {"steps": n})) for n in range(4)]
    assert path == sorted(path)
    assert path[3] > path[0] + 0.1
    once = moved_noise(noise, anchors, **given | {"steps": 1})
    torch.testing.assert_close((once - noise).norm(dim=1), torch.full((5,), 0.3).double())
    assert moved_noise(noise, anchors, **given | {"steps": 0}) is noise


def test_noise_without_a_gradient_stays():
    """On the only anchor and opposite to it."""
    anchor = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    noise = torch.tensor([[2.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    found = moved_noise(noise, anchor, temperature=0.5, steps=4, step_size=0.1)
    torch.testing.assert_close(found, noise)


def test_noise_depends_on_seed_and_step_alone():
    noise = gaussian(2000, 16, 1, 2)
    np.testing.assert_array_equal(gaussian(2000, 16, 1, 2), noise)
    assert noise.dtype == np.float32
    assert abs(noise.mean()) < 0.02
    assert noise.std() == pytest.approx(1, abs=0.02)
    for seed, step in ((1, 3), (2, 2)):
        assert not np.array_equal(gaussian(2000, 16, seed, step), noise)


def test_a_positive_is_never_a_false_negative():
    similar = torch.tensor([[1.0, 0.9, 0.2, 0.8], [0.9, 1.0, 0.8, 0.1]])
    assert false_negatives(similar, 0.8).tolist() == [
        [False, True, False, True],
        [True, False, True, False],
    ]
    assert false_negatives(similar, 0.8, first=2).tolist() == [
        [True, True, False, True],
        [True, True, True, False],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": 0.5},
        {"noise_steps": 1},
        {"noise_step_size": 0.1},
        {"complement": None},
        {"threshold": 1.0},
        {"seed": 1},
    ],
)
def test_every_setting_matters(make, ids, changes):
    losses = [make(**given)(Batch(ids)).loss.item() for given in ({}, changes)]
    assert abs(losses[0] - losses[1]) > 1e-3


def test_a_threshold_that_leaves_all_out_leaves_the_noise(make, ids):
    method = make(threshold=-1.0)
    output = method(Batch(ids))
    anchors = list(method.vectors(ids)[0].detach().double())
    drawn = [torch.from_numpy(v).double() for v in gaussian(9, 32, 0, STEP)]
    noise = slow_moved(drawn, anchors, STEPS, STEP_SIZE)
    expected = slow_loss(anchors, noise, np.zeros((6, 6), bool))
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert output.parts["left_out"].item() == pytest.approx(30 / 36)
    alone = make(threshold=-1.0, noise=0.0)
    loss = alone(Batch(ids)).loss
    loss.backward()
    assert loss.item() == 0
    assert all(not p.grad.any() for p in alone.parameters() if p.grad is not None)


def test_equal_and_one_token_sentences(make):
    """A sentence that occurs twice is a false negative of itself."""
    method = make(threshold=0.9999)
    output = method(Batch(Ragged.from_lists([[7], [8], [7], [9], [7], [10, 11]])))
    output.loss.backward()
    assert output.parts["left_out"].item() == pytest.approx(6 / 36)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


def test_the_complement_stays_as_it_is(make, ids):
    method = make()
    method.train()(Batch(ids)).loss.backward()
    model = method.complement.backbone.model
    assert not model.training
    assert all(p.grad is None for p in model.parameters())
    assert method.settings.encoders["method.complement"] == method.settings.method.complement


def test_a_complement_of_another_vocabulary_is_refused(make, bert_folder, roberta_folder, family):
    other = bert_folder if family == "cot-roberta" else roberta_folder
    with pytest.raises(UserError, match=r"complement .* another tokenizer .* the same vocabulary"):
        make(complement=other)
