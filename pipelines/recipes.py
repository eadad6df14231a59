"""Named training runs: functions that return settings. `cotbert recipes NAME` prints one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cotbert_core.errors import UserError, unknown
from cotbert_core.settings import TrainSettings, flatten_values, override

Recipe = Callable[[], TrainSettings]


def cot_bert_base() -> TrainSettings:
    """CoT-BERT on bert-base-uncased as published (METHODS section 5): STS average 79.40."""
    return TrainSettings()


def cot_roberta_base() -> TrainSettings:
    """CoT-BERT on roberta-base as published: STS average 80.62."""
    templates = {f"templates.{role}": f"cot-roberta/{role}" for role in _ROLES}
    return override(cot_bert_base(), {"encoder": "roberta-base", **templates})


def quickstart() -> TrainSettings:
    """CoT-BERT on all-MiniLM-L6-v2 in about a minute and a half on two CPU cores."""
    changes = {
        "encoder": "all-MiniLM-L6-v2",
        "optimizer.learning_rate": 3e-5,
        "batch_size": 64,
        "max_steps": 50,
        "eval_every": 10,
        "workers": 2,
    }
    return override(cot_bert_base(), changes)


_ROLES = ("anchor", "positive", "negative")

RECIPES: dict[str, Recipe] = {
    "cot-bert-base": cot_bert_base,
    "cot-roberta-base": cot_roberta_base,
    "quickstart": quickstart,
}


def settings_for(
    recipe: str, config: Path | None, assignments: Sequence[str], flags: Mapping[str, Any]
) -> TrainSettings:
    """A recipe's settings, changed by a YAML file, then by --set a.b=value, then by flags.

    flags: flat settings, those that are None left out. UserError lists every fault.
    """
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    changes: dict[str, Any] = {}
    if config is not None:
        changes |= _read_config(config)
    changes |= dict(_assignment(text) for text in assignments)
    changes |= {key: value for key, value in flags.items() if value is not None}
    return override(RECIPES[recipe](), changes)


def _read_config(path: Path) -> dict[str, Any]:
    """A YAML file of the settings' shape as flat settings."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"config {str(path)!r} cannot be read ({error}): give a YAML file"
        ) from None
    if not isinstance(values, dict):
        raise UserError(f"config {str(path)!r} holds no settings: write `setting: value` lines")
    return flatten_values(values)


def _assignment(text: str) -> tuple[str, Any]:
    """`a.b=value`, the value read as YAML (3e-5, true, null, a text)."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UserError(
            f"--set {text!r} is no assignment: write --set optimizer.learning_rate=3e-5"
        )
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = value
    # A text is taken as written: to YAML a colon, brackets or a # in a template mean something.
    if isinstance(parsed, (dict, list)) or (isinstance(parsed, str) and value[0] not in "'\""):
        parsed = value.strip()
    try:
        # YAML 1.1 takes 3e-5, without a dot, for a text.
        return path, float(parsed) if isinstance(parsed, str) else parsed
    except ValueError:
        return path, parsed
