"""A search space, and the settings of a sample.

The axis of a setting is a grid, a choice, or a range with two ends (tune_spaces.axes). Its corners
can be checked before anything starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tune_spaces.axes import Axis, Choice, axis_of, grid

# The key of a sample that names its variant; no setting has this name.
VARIANT = "variant"


@dataclass(frozen=True)
class Space:
    """The settings that a sweep varies.

    purpose: one sentence. recipe: the recipe that the space is made for.
    settings: flat path of a setting -> its axis; those of Ray Tune are converted.
    variants: name -> flat settings that change together; every trial uses one of them.
    published: a variant, or a setting's value as text -> its figure in a paper. source: the paper
    and table.
    """

    name: str
    purpose: str
    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.settings, Mapping):
            axes = {path: axis_of(axis) for path, axis in self.settings.items()}
            object.__setattr__(self, "settings", axes)


def axes_of(space: Space) -> dict[str, Axis]:
    """Return an axis for each setting, and one for the variants."""
    variants: dict[str, Axis] = {VARIANT: grid(space.variants)} if space.variants else {}
    return {**variants, **space.settings}


def size(space: Space) -> int | None:
    """Return the number of different trials; None if an axis is continuous."""
    choices = [axis for axis in axes_of(space).values() if isinstance(axis, Choice)]
    if len(choices) < len(axes_of(space)):
        return None
    return math.prod(len(axis.values) for axis in choices)


def changes(space: Space, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings of a sample, including those of its variant.

    Other entries of the sample, such as `seed`, are included unchanged.
    """
    settings = {path: value for path, value in sample.items() if path != VARIANT}
    return {**(space.variants[sample[VARIANT]] if space.variants else {}), **settings}


def corners(space: Space) -> Iterator[dict[str, Any]]:
    """Yield all combinations of the values of grids and choices and of both ends of ranges."""
    axes = {path: axis.corners for path, axis in axes_of(space).items()}
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def enough_corners(space: Space, many: int) -> Iterator[dict[str, Any]]:
    """Yield all corners, or, if there are more than `many`, corners with every pair of values."""
    axes = {path: axis.corners for path, axis in axes_of(space).items()}
    if len(axes) < 3 or math.prod(map(len, axes.values())) <= many:
        yield from corners(space)
        return
    first = {path: values[0] for path, values in axes.items()}
    for (one, values), (other, others) in itertools.combinations(axes.items(), 2):
        for pair in itertools.product(values, others):
            yield {**first, **dict(zip((one, other), pair, strict=True))}
