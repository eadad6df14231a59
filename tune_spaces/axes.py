"""The axes of a space: values of which a trial takes one, or a range of numbers.

`axis_of` converts Ray Tune's axes, which a user's Python file may have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


def is_number(value: Any) -> bool:
    """Return whether a value is a number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Choice:
    """A list of values. grid: whether trials take them in turn instead of at random."""

    values: tuple[Any, ...]
    grid: bool = False

    @property
    def is_valid(self) -> bool:
        return bool(self.values)

    @property
    def corners(self) -> list[Any]:
        return list(self.values)

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Range:
    """The numbers from low to high, both included.

    step: all values are multiples of it (None: any number). log: sampled uniformly by logarithm.
    whole: values are integers.
    """

    low: Any
    high: Any
    step: float | None = None
    log: bool = False
    whole: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether there is a value: a range in steps may have no multiple of them."""
        if not all(is_number(end) and math.isfinite(end) for end in (self.low, self.high)):
            return False
        low, high = self.corners
        return bool(low <= high)

    @property
    def multiples(self) -> tuple[int, int]:
        """The smallest and the largest k of a range whose values are k times its step."""
        step = self.step or 1
        # 0.3 / 0.1 is below 3.
        return math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)

    @property
    def corners(self) -> list[Any]:
        """The smallest and the largest value."""
        if self.step is None:
            return [self.low, self.high]
        first, last = self.multiples
        # 3 * 0.1 is above 0.3.
        return [max(first * self.step, self.low), min(last * self.step, self.high)]

    def __str__(self) -> str:
        low, high = self.corners
        scale = ", log-uniform" if self.log else ", uniform"
        return f"{low} to {high}{scale}{f', in steps of {self.step}' if self.step else ''}"


Axis = Choice | Range


def grid(values: Iterable[Any]) -> Choice:
    return Choice(tuple(map(_plain, values)), grid=True)


def choice(values: Iterable[Any]) -> Choice:
    return Choice(tuple(map(_plain, values)))


def _plain(value: Any) -> Any:
    """Return numpy's numbers as Python's, since JSON has no others."""
    return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value


def uniform(low: float, high: float) -> Range:
    return Range(low, high)


def loguniform(low: float, high: float) -> Range:
    return Range(low, high, log=True)


def axis_of(given: Any) -> Any:
    """Return Ray Tune's grid, choice or range as an axis; anything else unchanged."""
    if isinstance(given, Mapping) and set(given) == {"grid_search"}:
        return grid(given["grid_search"])
    if hasattr(given, "categories"):
        return choice(given.categories)
    if not (hasattr(given, "lower") and hasattr(given, "upper")):
        return given
    sampler = given.get_sampler()
    step = getattr(sampler, "q", None)
    log = str(sampler.get_sampler() if step is not None else sampler) == "LogUniform"
    whole = isinstance(given.cast(1.0), int)
    # Ray Tune samples the upper end too, except for whole numbers without steps or in steps of 1.
    above = whole and step in (None, 1)
    return Range(given.lower, given.upper - 1 if above else given.upper, step, log, whole)
