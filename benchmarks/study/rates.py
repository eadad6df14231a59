"""Which learning rates the study tries on a small budget, and the best of each recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.study.entries import COT, DENO, PROMPT
from cotbert_core.files import read_json

# The rates that are tried, and those of methods that train a few vectors alone.
RATES, PROMPT_RATES = (5e-5, 2e-4), (2e-3, 1e-2)
PROMPTS_ALONE = ("optiprompt-base", "promcse-base")
# The seed of the trials, which is not reported.
SEED = 100
SIMCSE = "simcse-base"
# Recipes that take the rate of another, since they train the same vector by a similar loss.
SHARED = {
    **dict.fromkeys(("consert-base", "esimcse-base", "dclr-base", "arccse-base"), SIMCSE),
    **dict.fromkeys(("pcl-base", "rankcse-base", "simcse-supervised"), SIMCSE),
    **dict.fromkeys(("sncse-base", "promptbert-supervised"), PROMPT),
    "conpvp-base": COT,
    "denosent-paper": DENO,
}


def rates_of(recipe: str) -> tuple[float, ...]:
    """Return the rates that a recipe tries."""
    return PROMPT_RATES if recipe in PROMPTS_ALONE else RATES


def rate_name(recipe: str, rate: float) -> str:
    """Return the name of a trial."""
    return f"{recipe}-{rate:g}"


def recipes_that_try(recipes: Sequence[str]) -> list[str]:
    """Return the recipes whose trials give all of these a rate."""
    return list(dict.fromkeys(SHARED.get(recipe, recipe) for recipe in recipes))


def best_rate(output: Path, recipe: str) -> float:
    """Return the learning rate whose trial has the best dev score."""
    scores = _tried(_trials(output) / SHARED.get(recipe, recipe))
    return max(scores, key=lambda rate: scores[rate])


def tried_rates(output: Path) -> dict[str, dict[float, float]]:
    """Return the dev score of each learning rate that a recipe has tried."""
    finished = sorted(_trials(output).glob("*/result.json"))
    return {path.parent.name: _tried(path.parent) for path in finished}


def _trials(output: Path) -> Path:
    return output / "rates"


def _tried(folder: Path) -> dict[float, float]:
    names = {rate_name(folder.name, rate): rate for rate in rates_of(folder.name)}
    rows = [row for row in read_json(folder / "result.json")["rows"] if row["entry"] in names]
    return {names[row["entry"]]: row["dev_mean"] for row in rows}
