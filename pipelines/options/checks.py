"""Checks of options, made when a dataclass of them is built: ranges, and what needs another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from cotbert_core.errors import UserError
from pipelines.options.declare import Option


def at_least(options: Any, least: int, *names: str) -> None:
    """Raise UserError unless each of these fields is None or at least `least`."""
    _check(options, names, lambda value: value >= least, f"at least {least}")


def above(options: Any, bound: float, *names: str) -> None:
    """Raise UserError unless each of these fields is None or above `bound`."""
    _check(options, names, lambda value: value > bound, f"a number above {bound}")


def option_of(field: str) -> str:
    """Return the option that sets a field, unless the field names another."""
    return "--" + field.replace("_", "-")


def _flag(options: Any, field: str) -> str:
    """Return the option that sets a field of these options."""
    metadata = next(one.metadata for one in fields(options) if one.name == field)
    return (metadata[Option].flag if Option in metadata else "") or option_of(field)


def only_with(needed: str, options: Any, *names: str) -> None:
    """Raise UserError if one of these fields is given and the field `needed` is not, without which
    it has no effect."""
    if getattr(options, needed) not in (None, (), False):
        return
    defaults = {field.name: field.default for field in fields(options)}
    for name in names:
        if (value := getattr(options, name)) != defaults[name]:
            raise UserError(
                f"{name} is {value!r} and has no effect without {_flag(options, needed)}: give "
                f"that too, or leave {_flag(options, name)} out"
            )


def _check(
    options: Any, names: tuple[str, ...], holds: Callable[[float], bool], wanted: str
) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and holds(value)):
            given = _flag(options, name).removeprefix("--").replace("-", "_")
            raise UserError(f"{given} is {value}: give {wanted}")
