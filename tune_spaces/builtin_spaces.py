"""The built-in search spaces: functions that return one. `cotbert spaces NAME` prints one."""

from __future__ import annotations

from collections.abc import Callable

from tune_spaces.search_space import Space
from tune_spaces.template_spaces import cot_bert_ablations, templates

AVERAGE = "bert-base-uncased, average of 7 STS"


def temperature() -> Space:
    """Return a range of temperatures that includes the papers' two values, 0.03 and 0.05."""
    from ray import tune

    return Space(
        name="temperature",
        purpose="How sharply the loss tells a sentence's positive from the rest of its batch.",
        recipe="cot-bert-base",
        settings={"method.temperature": tune.loguniform(0.01, 0.2)},
    )


def temperature_grid() -> Space:
    """Return a grid of temperatures around CoT-BERT's and PromptBERT's 0.05 and DenoSent's 0.03.

    The three papers have no grid of their own.
    """
    from ray import tune

    return Space(
        name="temperature-grid",
        purpose="The papers' temperatures, 0.03 and 0.05, between colder and warmer ones.",
        recipe="cot-bert-base",
        settings={"method.temperature": tune.grid_search([0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2])},
        published={"0.05": 79.40},
        source=f"CoT-BERT, Table 2, {AVERAGE}",
    )


def denosent_dropout() -> Space:
    """Return the sweep of DenoSent's section "Implementation", which STS-B dev decides."""
    from ray import tune

    return Space(
        name="denosent-dropout",
        purpose="DenoSent's own sweep: how much of the decoder's input is lost, and its depth.",
        recipe="denosent-base",
        settings={
            "method.dropout": tune.grid_search([0.8, 0.825, 0.85, 0.875, 0.9]),
            "method.layers": tune.grid_search([12, 14, 16]),
        },
        published={"0.825, 16": 79.33},
        source=f"DenoSent, Table 1, {AVERAGE}",
    )


def denosent_dropout_range() -> Space:
    """Return a range that is wider than the grid on both sides; Figure 4b has its best inside."""
    from ray import tune

    return Space(
        name="denosent-dropout-range",
        purpose="Any dropout of the decoder's input from 0.75 to 0.95, with the sweep's depths.",
        recipe="denosent-base",
        settings={
            "method.dropout": tune.uniform(0.75, 0.95),
            "method.layers": tune.choice([12, 14, 16]),
        },
    )


def optimizer() -> Space:
    """Return learning rates, batch sizes and warm-up steps that include those of the papers.

    The papers' learning rates are 1e-5 to 5e-5, their batches 64 to 512, and their warm-ups none
    and 500 steps.
    """
    from ray import tune

    return Space(
        name="optimizer",
        purpose="Learning rate, batch and steps of warm-up, in the ranges of the three papers.",
        recipe="cot-bert-base",
        settings={
            "optimizer.learning_rate": tune.loguniform(5e-6, 1e-4),
            "batch_size": tune.choice([64, 128, 256, 512]),
            "optimizer.warmup_steps": tune.choice([0, 100, 500]),
        },
    )


def seeds() -> Space:
    """Return ten seeds; PromptBERT's Table 10 only has their mean and ends, so no figures."""
    from ray import tune

    return Space(
        name="seeds",
        purpose="The same run under ten seeds, as in PromptBERT's Table 10: how far chance goes.",
        recipe="promptbert-base",
        settings={"seed": tune.grid_search(list(range(10)))},
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
