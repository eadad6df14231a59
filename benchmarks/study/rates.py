"""Which learning rates the study tries on a small budget, and the best of each recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cotbert_core.files import read_json

# The rates that are tried, and those of methods that train a few vectors alone.
RATES, PROMPT_RATES = (5e-5, 2e-4), (2e-3, 1e-2)
PROMPTS_ALONE = ("optiprompt-base", "promcse-base")
# The seed of the trials, which is not reported.
SEED = 100
SIMCSE, PROMPT, COT, DENO = "simcse-base", "promptbert-base", "cot-bert-base", "denosent-base"
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
    """Return the rate with the best dev score of those that were tried."""
    scores = tried_rates(output)[SHARED.get(recipe, recipe)]
    return max(scores, key=lambda rate: scores[rate])


def tried_rates(output: Path) -> dict[str, dict[float, float]]:
    """Return the dev score of each learning rate that a recipe has tried."""
    tried = {}
    for path in sorted((output / "rates").glob("*/result.json")):
        recipe = path.parent.name
        rates = {rate_name(recipe, rate): rate for rate in rates_of(recipe)}
        rows = [row for row in read_json(path)["rows"] if row["entry"] in rates]
        tried[recipe] = {rates[row["entry"]]: row["dev_mean"] for row in rows}
    return tried
