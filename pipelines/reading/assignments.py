"""Settings as users give them: `--set a.b=value`, and YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from cotbert_core.errors import UserError
from cotbert_core.settings import flatten_values, rename_notes, with_current_names
from pipelines.runtime.progress import say_once


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the flat settings in texts such as `method.temperature=0.1`, by their current names.

    Warns of former names; UserError for a text that is no assignment.
    """
    return _current(dict(_assignment(text) for text in assignments))


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings of a YAML file, flat and by their current names."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"config {str(path)!r} cannot be read ({error}): give a YAML file"
        ) from None
    if not isinstance(values, dict):
        raise UserError(f"config {str(path)!r} holds no settings: write `setting: value` lines")
    return _current(flatten_values(values))


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
        parsed = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError):  # ValueError: a day that does not exist
        parsed = value
    if type(parsed) is int and str(parsed) != value.strip():
        return path, value.strip()  # YAML 1.1 reads 064 as octal and 1:30 as 90
    # A text is used as written, since colons, brackets, # and a date have a meaning in YAML.
    quoted = value[:1] in ("'", '"')
    if isinstance(parsed, (dict, list, date)) or (isinstance(parsed, str) and not quoted):
        parsed = value.strip()
    try:
        # YAML 1.1 reads 3e-5, which has no dot, as a text.
        return path, float(parsed) if isinstance(parsed, str) else parsed
    except ValueError:
        return path, parsed
