"""A training step: rates by hand, and what must not move."""

from __future__ import annotations

import copy

import pytest
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.settings import OptimizerSettings
from cotbert_core.training import step as step_module
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import (
    NonFiniteLossError,
    learning_rate,
    make_optimizer,
    train_step,
)


@pytest.fixture
def settings(encoder_folder, tiny_settings):
    return tiny_settings(encoder_folder, {"optimizer.learning_rate": 1e-3, "dropout": 0.1})


@pytest.fixture
def start(settings):
    """A method in train mode with its optimizer, from a seed."""

    def make(seed=0):
        torch.manual_seed(seed)
        backbone = load_backbone(settings.encoder, dropout=settings.dropout)
        method = build_method(backbone, settings).train()
        return method, make_optimizer(method, settings.optimizer)

    return make


@pytest.fixture
def corpus(settings, sentences):
    return load_backbone(settings.encoder).tokenizer(sentences, settings.max_length)


@pytest.mark.parametrize("schedule", ["constant", "linear"])
@pytest.mark.parametrize("warmup", [0, 50])
def test_learning_rates_are_those_of_transformers_schedules(schedule, warmup):
    """As the released code steps them: the optimizer first, then the schedule."""
    from transformers import get_constant_schedule_with_warmup, get_linear_schedule_with_warmup

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=4e-5)
    theirs = {
        "constant": lambda: get_constant_schedule_with_warmup(optimizer, warmup),
        "linear": lambda: get_linear_schedule_with_warmup(optimizer, warmup, 200),
    }[schedule]()
    expected = []
    for _ in range(200):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    settings = OptimizerSettings(learning_rate=4e-5, warmup_steps=warmup, schedule=schedule)
    rates = [learning_rate(step, 200, settings) for step in range(1, 201)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_the_norm_reported_is_before_clipping(start, corpus, settings):
    tight = settings.model_copy(
        update={"optimizer": settings.optimizer.model_copy(update={"clip": 1e-3})}
    )
    for chosen in (settings, tight):
        method, optimizer = start()
        result = train_step(method, Batch(corpus), optimizer, chosen, 1, 4)
        assert result.learning_rate == settings.optimizer.learning_rate
        grads = [p.grad for p in method.parameters() if p.grad is not None]
        clipped = torch.stack([g.norm() for g in grads]).norm().item()
        assert clipped == pytest.approx(min(chosen.optimizer.clip, result.gradient_norm), rel=1e-3)
        assert result.gradient_norm > 1e-2


def test_all_weights_move_by_the_formulas_of_adamw(start, corpus, settings):
    changes = {"weight_decay": 0.1, "warmup_steps": 1, "clip": 0.5}
    chosen = settings.model_copy(
        update={"optimizer": settings.optimizer.model_copy(update=changes)}
    )
    method, _ = start()
    optimizer = make_optimizer(method, chosen.optimizer)
    trained = {name: p for name, p in method.named_parameters() if p.requires_grad}
    weights = {name: p.detach().double() for name, p in trained.items()}
    means, squares = (dict.fromkeys(trained, 0.0) for _ in range(2))
    assert any(name.endswith("LayerNorm.weight") for name in trained), "premise: it decays too"
    for step, rate in enumerate((0.0, 1e-3, 2e-3 / 3, 1e-3 / 3), 1):
        result = train_step(method, Batch(corpus), optimizer, chosen, step, 4)
        assert result.gradient_norm > 0.5, "premise: the gradient is clipped"
        for name, parameter in trained.items():
            gradient = parameter.grad.double()  # clipped
            means[name] = 0.9 * means[name] + 0.1 * gradient
            squares[name] = 0.999 * squares[name] + 0.001 * gradient**2
            mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.999**step)
            decayed = weights[name] * (1 - rate * 0.1)
            weights[name] = decayed - rate * mean / (square.sqrt() + 1e-8)
    for name, parameter in trained.items():
        torch.testing.assert_close(parameter.detach().double(), weights[name], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    # tanh makes 1 of an infinite weight: the loss is a number and only the gradient is not.
    ("poison", "what"),
    [(float("nan"), "loss"), (float("inf"), "gradient norm")],
)
def test_what_is_no_number_stops_the_run_before_the_weights_move(
    start, corpus, settings, poison, what
):
    method, optimizer = start()
    with torch.no_grad():
        method.head.dense.weight[0, 0] = poison
    before = copy.deepcopy(method.state_dict())
    with pytest.raises(NonFiniteLossError, match=f"the {what} at step 3 is nan on rank 0"):
        train_step(method, Batch(corpus), optimizer, settings, 3, 4)
    after = method.state_dict()
    assert all(torch.equal(before[n], after[n]) for n in before if n != "head.dense.weight")
    assert not optimizer.state


def test_a_bad_loss_of_another_rank_stops_this_one(start, corpus, settings, monkeypatch):
    method, optimizer = start()
    monkeypatch.setattr(
        step_module, "gather_rows", lambda own: [own.tolist(), [float("nan")] * len(own)]
    )
    with pytest.raises(NonFiniteLossError, match="step 2 is nan on rank 1"):
        train_step(method, Batch(corpus), optimizer, settings, 2, 4)
