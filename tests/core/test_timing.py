"""A step's seconds by section: each second once, in the section that it was spent in."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist
from torch.autograd.graph import register_multi_grad_hook

from cotbert_core.training import distributed, step_timer
from cotbert_core.training.distributed import gather_with_gradient
from cotbert_core.training.step import make_optimizer, train_step
from cotbert_core.training.step_timer import clocked_sections, section, section_after_gradients

CPU = torch.device("cpu")


@pytest.fixture
def spend(monkeypatch):
    """A function that lets seconds go by, on a clock that nothing else moves."""
    now = [100.0]
    monkeypatch.setattr(step_timer.time, "perf_counter", lambda: now[0])

    def spend(seconds):
        now[0] += seconds

    return spend


class Spending(torch.autograd.Function):
    """The vectors as they are; 8 seconds in the forward pass, 16 in the backward."""

    @staticmethod
    def forward(context, vectors, spend):
        context.spend = spend
        with section("gather"):
            spend(8)
        return vectors * 1.0

    @staticmethod
    def backward(context, gradient):
        with section("gather"):
            context.spend(16)
        return gradient, None


def test_a_second_of_a_lap_belongs_to_the_innermost_section_alone(spend):
    with clocked_sections(CPU) as clock:
        spend(1)
        with section("forward"):
            spend(2)
            with section("gather"):
                spend(4)
                with section("loss"):
                    spend(8)
            spend(16)
        with section("gather"):
            spend(32)
        assert clock.lap() == (63, {"forward": 18, "gather": 36, "loss": 8})
        spend(2)
        clock.skip()
        spend(4)
        assert clock.lap() == (4, {})
        with pytest.raises(KeyError), section("forward"), section("loss"):
            spend({}[1])
        with section("backward"):
            spend(2)
        assert clock.lap() == (2, {"loss": 0, "forward": 0, "backward": 2})


def test_a_thread_that_is_waited_for_may_enter_sections(spend):
    """As autograd's own does when the loss is on a GPU."""

    def work():
        with section("gather"):
            spend(4)

    with clocked_sections(CPU) as clock:
        with section("backward"):
            spend(1)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            spend(2)
        assert clock.lap()[1] == {"backward": 3, "gather": 4}


def test_what_comes_after_the_gradients_is_another_section(spend):
    weights = [torch.ones(3, requires_grad=True) for _ in range(2)]
    # After the last gradient, as DDP's own hooks.
    for weight in weights:
        weight.register_post_accumulate_grad_hook(lambda _: spend(4))
    with clocked_sections(CPU) as clock:
        loss = Spending.apply(weights[0] * weights[1], lambda seconds: spend(seconds)).sum()
        clock.lap()
        with section("backward"), section_after_gradients(weights, "optimizer"):
            spend(1)
            loss.backward()
            spend(32)
        _, sections = clock.lap()
    assert sections["gather"] == 16
    assert sections["optimizer"] >= 4 + 32
    assert sum(sections.values()) == 1 + 16 + 2 * 4 + 32


def test_without_a_clock_nothing_is_measured_traced_or_hooked(monkeypatch):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(step_timer.time, "perf_counter", never)
    monkeypatch.setattr(step_timer, "record_function", never)
    monkeypatch.setattr(step_timer, "register_multi_grad_hook", never)
    weight = torch.ones(2, requires_grad=True)
    with section("forward"), section("loss"):
        loss = weight.sum()
    with section_after_gradients([weight], "gather"):
        loss.backward()
    assert section("forward") is section("loss"), "one object for all"
    assert register_multi_grad_hook is not never, "premise: there is one to call"


def test_a_trace_has_the_sections_names():
    with torch.profiler.profile() as trace, clocked_sections(CPU), section("bias rows"):
        torch.ones(2).sum()
    assert "bias rows" in {event.key for event in trace.key_averages()}


def test_gathers_are_clocked_in_both_directions(monkeypatch, spend):
    """On rank 1 of 2."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    monkeypatch.setattr(dist, "all_gather", lambda parts, own: [p.copy_(own) for p in parts])
    monkeypatch.setattr(dist, "all_reduce", lambda total, *_: spend(16))
    vectors = torch.ones(2, 3, requires_grad=True)
    with clocked_sections(CPU) as clock:
        gathered = gather_with_gradient(vectors)
        assert clock.lap()[1].keys() == {"gather"}
        gathered.sum().backward()
        assert clock.lap()[1] == {"gather": 16}


@pytest.mark.parametrize(
    ("name", "more"),
    [("cot-bert", set()), ("cot-bert frozen bias", {"bias rows"}), ("denosent", {"decoder"})],
)
def test_a_step_has_its_sections_and_the_numbers_of_one_without_a_clock(start, name, more):
    def step():
        method, settings, batch = start(name, 0.1)
        return train_step(method, batch, make_optimizer(method, settings.optimizer), settings, 1, 2)

    plain = step()
    with clocked_sections(CPU) as clock:
        clocked = step()
        whole, sections = clock.lap()
    assert clocked == plain
    assert sections.keys() == {"forward", "loss", "backward", "optimizer"} | more
    assert 0 < sum(sections.values()) <= whole
