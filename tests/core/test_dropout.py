"""Fast dropout: how often, what is left, and where the gradient goes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.dropout import Dropout, dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.825])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_elements_are_dropped_at_the_rate_and_the_mean_stays(rate, dtype):
    torch.manual_seed(0)
    count = 400_003  # no multiple of the four that share a number
    out = dropout(torch.ones(count, dtype=dtype), rate).double()
    share = float((out == 0).double().mean())
    assert abs(share - rate) < 5 * (rate * (1 - rate) / count) ** 0.5
    kept = out[out != 0]
    assert kept.min() == kept.max()
    assert float(kept[0]) == pytest.approx(
        1 / (1 - rate), rel=1e-4 if dtype.itemsize == 4 else 4e-3
    )


def test_neighbours_are_dropped_independently():
    """Also elements that share a random number."""
    torch.manual_seed(0)
    rate, count = 0.3, 200_000
    dropped = (dropout(torch.ones(count, 8), rate) == 0).double()
    both = dropped.T @ dropped / count
    apart = ~torch.eye(8, dtype=torch.bool)
    assert (both[apart] - rate**2).abs().max() < 5 * (rate**2 * (1 - rate**2) / count) ** 0.5
    after = (dropped[:-1] * dropped[1:]).mean(0)
    assert (after - rate**2).abs().max() < 5 * (rate**2 / count) ** 0.5


def test_the_gradient_goes_where_the_values_went():
    torch.manual_seed(0)
    values = torch.randn(3, 5, 7, requires_grad=True)
    out = dropout(values, 0.4)
    scales = out.detach() / values.detach()
    out.backward(torch.full_like(out, 2.0))
    assert 0 < int((scales == 0).sum()) < values.numel()
    torch.testing.assert_close(values.grad, 2 * scales)


def test_the_generator_makes_the_draw():
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropout(torch.ones(64), 0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_it_is_in_every_place_of_an_encoder_and_off_when_not_training(encoder_folder):
    model = load_backbone(encoder_folder, dropout=0.3).model
    kinds = {type(m) for m in model.modules() if isinstance(m, nn.Dropout)}
    assert kinds == {Dropout}
    assert not any(module.training for module in model.modules())
    assert {m.p for m in model.modules() if isinstance(m, Dropout)} == {0.3}
    own = load_backbone(encoder_folder).model.config.hidden_dropout_prob
    assert model.config.hidden_dropout_prob == own != 0.3, "what is saved with the model"
    layer, values = Dropout(0.5), torch.ones(8)
    assert layer.eval()(values) is values
    assert dropout(values, 0.0) is values
    assert not torch.equal(layer.train()(values), values)
