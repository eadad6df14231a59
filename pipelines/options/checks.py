"""Range checks of numbers, made when a dataclass of options is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cotbert_core.errors import UserError


def at_least(options: Any, least: int, *names: str) -> None:
    """Raise UserError unless each of these fields is None or at least `least`."""
    _check(options, names, lambda value: value >= least, f"at least {least}")


def above(options: Any, bound: float, *names: str) -> None:
    """Raise UserError unless each of these fields is None or above `bound`."""
    _check(options, names, lambda value: value > bound, f"a number above {bound}")


def _check(
    options: Any, names: tuple[str, ...], holds: Callable[[float], bool], wanted: str
) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and holds(value)):
            raise UserError(f"{name} is {value}: give {wanted}")
