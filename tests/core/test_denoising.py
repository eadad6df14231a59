"""Template bias: short rows for the distinct lengths, against one slow row per sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core.encoder import template_denoising
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.template_denoising import shared_bias_rows, template_bias
from cotbert_core.errors import UserError
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.templates.wrapping import BoundTemplate
from tests.core import slow_reference

LENGTHS = np.array([3, 0, 7, 3, 1, 7, 20])
CASES = [(mode, way) for mode in ("position", "pad") for way in ("aligned", "released")]


@pytest.fixture
def backbone(encoder_folder):
    return load_backbone(encoder_folder, dropout=0.1)


@pytest.fixture(params=["anchor", "only-prefix/anchor"])
def bound(request, backbone, family):
    template = resolve_template(f"{family}/{request.param}")
    return BoundTemplate.bind(template, backbone.tokenizer.hf)


@pytest.mark.parametrize(("mode", "pad_positions"), CASES)
def test_bias_equals_one_row_per_length(backbone, bound, exact_model, mode, pad_positions):
    bias = template_bias(backbone, bound, LENGTHS, mode, pad_positions)
    with torch.no_grad():
        one_by_one = [
            slow_reference.bias(exact_model, bound, n, mode, pad_positions)
            for n in LENGTHS.tolist()
        ]
    slow = torch.stack(one_by_one)
    torch.testing.assert_close(bias.double(), slow, atol=1e-5, rtol=0)
    assert (slow[0] - slow[2]).abs().max() > 1e-2, "premise: the length matters"


def test_each_bias_is_that_of_its_length_in_any_order(backbone, bound):
    bias = template_bias(backbone, bound, LENGTHS, "pad")
    shuffled = np.random.default_rng(0).permutation(len(LENGTHS))
    assert torch.equal(template_bias(backbone, bound, LENGTHS[shuffled], "pad"), bias[shuffled])
    assert not template_bias(backbone, bound, LENGTHS, "none").any()
    assert template_bias(backbone, bound, LENGTHS[:0], "pad").shape == (0, 32)
    without = BoundTemplate.bind(None, backbone.tokenizer.hf)
    with pytest.raises(UserError, match="the template has no mask"):
        template_bias(backbone, without, LENGTHS, "pad")


@pytest.mark.parametrize("mode", ["position", "pad"])
def test_only_distinct_lengths_reach_the_model(backbone, bound, mode):
    seen = []
    hook = backbone.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    template_bias(backbone, bound, np.repeat([4, 9, 2], 50), mode)
    hook.remove()
    assert sum(seen) == 3


def test_bias_has_gradient_and_runs_in_the_encoders_mode(backbone, bound):
    calm = [template_bias(backbone, bound, LENGTHS, "pad") for _ in range(2)]
    assert calm[0].requires_grad
    assert torch.equal(*calm)
    backbone.model.train()
    noisy = [template_bias(backbone, bound, LENGTHS, "pad") for _ in range(2)]
    assert not torch.equal(*noisy)


def test_the_pads_are_read_and_their_embedding_is_not_trained(backbone, bound):
    table = backbone.model.get_input_embeddings().weight
    before = template_bias(backbone, bound, LENGTHS, "pad")
    before.square().sum().backward()
    trained = table.grad.abs().sum(dim=1) > 0
    assert trained[list({*bound.before, *bound.after})].all()
    assert not trained[bound.pad_id]
    with torch.no_grad():
        table[bound.pad_id, 0] += 1.0
    after = template_bias(backbone, bound, LENGTHS, "pad")
    same = torch.isclose(before, after).all(dim=1).numpy()
    assert (same == (LENGTHS == 0)).all(), "they are attended to"


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_workers_share_the_rows_of_all_lengths(backbone, bound, monkeypatch, workers):
    """Each computes a part; all parts together hold every length of any worker, found by index."""
    lengths = [np.array([3, 5, 3, 9 + own % 2, *range(11, 19)]) for own in range(workers)]
    every = np.unique(np.concatenate(lengths))
    monkeypatch.setattr(template_denoising, "world_size", lambda: workers)
    monkeypatch.setattr(template_denoising, "union", lambda values, limit: every)
    shares, places = [], []
    for own in range(workers):
        monkeypatch.setattr(template_denoising, "rank", lambda own=own: own)
        rows, which = shared_bias_rows(backbone, bound, lengths[own], "pad", "aligned", 60)
        shares.append(rows.lengths.numpy() - bound.length)
        places.append(which)
    assert {len(share) for share in shares} == {-(-len(every) // workers)}, "gathered equally"
    together = np.concatenate(shares)
    for own in range(workers):
        assert together[places[own]].tolist() == lengths[own].tolist()
    second = every[workers : 2 * workers].tolist()
    turned = [share[1] for share in shares[::-1]][: len(second)]
    assert turned == second, "no worker has the longer rows each time"
