"""The built-in search spaces: functions that return one. `cotbert spaces NAME` prints one."""

from __future__ import annotations

from collections.abc import Callable

from tune_spaces.axes import choice, grid, loguniform, uniform
from tune_spaces.search_space import Space
from tune_spaces.template_spaces import cot_bert_ablations, templates

AVERAGE = "bert-base-uncased, average of 7 STS"


def temperature() -> Space:
    """Return a range of temperatures that includes the papers' two values, 0.03 and 0.05."""
    return Space(
        name="temperature",
        purpose="Temperature of the loss, any value from 0.01 to 0.2.",
        recipe="cot-bert-base",
        settings={"method.temperature": loguniform(0.01, 0.2)},
    )


def temperature_grid() -> Space:
    """Return a grid of temperatures around CoT-BERT's and PromptBERT's 0.05 and DenoSent's 0.03.

    The three papers have no grid of their own.
    """
    return Space(
        name="temperature-grid",
        purpose="Temperature of the loss: the papers' 0.03 and 0.05, and five others.",
        recipe="cot-bert-base",
        settings={"method.temperature": grid([0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2])},
        published={"0.05": 79.40},
        source=f"CoT-BERT, Table 2, {AVERAGE}",
    )


def denosent_dropout() -> Space:
    """Return the sweep of DenoSent's section "Implementation"."""
    return Space(
        name="denosent-dropout",
        purpose="DenoSent's own sweep: dropout of the decoder's input, and decoder layers.",
        recipe="denosent-base",
        settings={
            "method.dropout": grid([0.8, 0.825, 0.85, 0.875, 0.9]),
            "method.layers": grid([12, 14, 16]),
        },
    )


def denosent_dropout_range() -> Space:
    """Return a range that is wider than the grid on both sides; Figure 4b has its best inside."""
    return Space(
        name="denosent-dropout-range",
        purpose="Dropout of the decoder's input, any value from 0.75 to 0.95, and decoder layers.",
        recipe="denosent-base",
        settings={"method.dropout": uniform(0.75, 0.95), "method.layers": choice([12, 14, 16])},
    )


def optimizer() -> Space:
    """Return learning rates, batch sizes and warm-up steps that include those of the papers.

    The papers' learning rates are 1e-5 to 5e-5, their batches 64 to 512, and their warm-ups none
    and 500 steps.
    """
    return Space(
        name="optimizer",
        purpose="Learning rate, batch size and warm-up steps, in the ranges of the three papers.",
        recipe="cot-bert-base",
        settings={
            "optimizer.learning_rate": loguniform(5e-6, 1e-4),
            "batch_size": choice([64, 128, 256, 512]),
            "optimizer.warmup_steps": choice([0, 100, 500]),
        },
    )


def seeds() -> Space:
    """Return ten seeds; PromptBERT's Table 10 only has their mean and ends, so no figures."""
    return Space(
        name="seeds",
        purpose="The same training with ten seeds, for the spread of PromptBERT's Table 10.",
        recipe="promptbert-base",
        settings={"seed": grid(list(range(10)))},
    )


SPACES: dict[str, Callable[[], Space]] = {
    "temperature": temperature,
    "temperature-grid": temperature_grid,
    "templates": templates,
    "denosent-dropout": denosent_dropout,
    "denosent-dropout-range": denosent_dropout_range,
    "cot-bert-ablations": cot_bert_ablations,
    "optimizer": optimizer,
    "seeds": seeds,
}
