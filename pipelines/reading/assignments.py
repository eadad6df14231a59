"""Settings as users give them: `--set a.b=value`, and YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cotbert_core.errors import UserError
from cotbert_core.settings import flatten_values, rename_notes, with_current_names
from pipelines.runtime.progress import say_once
from tune_spaces.yaml_values import parse_value, read_yaml


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the flat settings in texts such as `method.temperature=0.1`, by their current names.

    Warns of former names; UserError for a text that is no assignment.
    """
    return _current(dict(_assignment(text) for text in assignments))


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a YAML file, flat and by their current names."""
    try:
        values = read_yaml(path) or {}
        if not isinstance(values, dict):
            raise UserError("it holds no settings; write `setting: value` lines")
        return _current(flatten_values(values))
    except UserError as error:
        raise UserError(f"config {str(path)!r}: {error}") from None


def _current(values: dict[str, Any]) -> dict[str, Any]:
    for note in rename_notes(values):
        say_once(f"warning: {note}")
    return with_current_names(values)


def _assignment(text: str) -> tuple[str, Any]:
    """Parse `a.b=value`; the value is read as YAML (3e-5, true, null, a text)."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UserError(
            f"--set {text!r} is not an assignment: write --set optimizer.learning_rate=3e-5"
        )
    try:
        parsed = parse_value(value)
    except (yaml.YAMLError, ValueError):  # ValueError: a number with thousands of digits
        parsed = value
    # A text is used as written, since colons, brackets and # have a meaning in YAML.
    quoted = value[:1] in ("'", '"')
    if isinstance(parsed, (dict, list)) or (isinstance(parsed, str) and not quoted):
        parsed = value.strip()
    return path, parsed
