"""The search for learning rates on a small budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.study.entries import COT, DENO, PROMPT
from cotbert_core.files import read_json
from cotbert_core.training.dev_scores import sort_key

# The candidate rates, and those of methods that train only a few vectors.
RATES, PROMPT_RATES = (5e-5, 2e-4), (2e-3, 1e-2)
PROMPTS_ALONE = ("optiprompt-base", "promcse-base")
# The seed of the search, whose scores are not reported.
SEED = 100
SIMCSE = "simcse-base"
# Recipes that share the rate of another, since they train the same vector with a similar loss.
SHARED = {
    **dict.fromkeys(("consert-base", "esimcse-base", "dclr-base", "arccse-base"), SIMCSE),
    **dict.fromkeys(("pcl-base", "rankcse-base", "simcse-supervised"), SIMCSE),
    **dict.fromkeys(("sncse-base", "promptbert-supervised"), PROMPT),
    "conpvp-base": COT,
    "denosent-paper": DENO,
}


def rates_of(recipe: str) -> tuple[float, ...]:
    """Return the candidate rates of a recipe."""
    return PROMPT_RATES if recipe in PROMPTS_ALONE else RATES


def rate_name(recipe: str, rate: float) -> str:
    """Return the name of a trial."""
    return f"{recipe}-{rate:g}"


def recipes_that_try(recipes: Sequence[str]) -> list[str]:
    """Return the recipes whose searches give all of these recipes a rate."""
    return list(dict.fromkeys(SHARED.get(recipe, recipe) for recipe in recipes))


def best_rate(output: Path, recipe: str) -> float:
    """Return the learning rate whose trial has the best dev score."""
    scores = _tried(_trials(output) / SHARED.get(recipe, recipe))
    return max(scores, key=lambda rate: sort_key(scores[rate]))


def tried_rates(output: Path) -> dict[str, dict[float, float]]:
    """Return the dev score of each candidate rate, by recipe."""
    finished = sorted(_trials(output).glob("*/result.json"))
    return {path.parent.name: _tried(path.parent) for path in finished}


def _trials(output: Path) -> Path:
    return output / "rates"


def _tried(folder: Path) -> dict[float, float]:
    names = {rate_name(folder.name, rate): rate for rate in rates_of(folder.name)}
    rows = [row for row in read_json(folder / "result.json")["rows"] if row["entry"] in names]
    return {names[row["entry"]]: row["dev_mean"] for row in rows}
