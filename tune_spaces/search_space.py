"""A space, its axes, and the settings that a sample of it stands for.

A setting's axis is a grid, a choice, or a range with two ends (tune_spaces.axes). Each of them can
be tried at its corners before anything starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tune_spaces.axes import Axis, Choice, axis_of, grid

# The key of a sample that tells which variant was drawn; no setting has this name.
VARIANT = "variant"


@dataclass(frozen=True)
class Space:
    """What a sweep varies.

    purpose: one sentence. recipe: the one that the space is made for.
    settings: flat path of a setting -> its axis, ours or Ray Tune's, which becomes ours.
    variants: name -> flat settings that change together; every trial takes one of them.
    published: a trial's `label` -> the figure that a paper gives for it; source: where.
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
    """How many different trials there are; None when an axis is continuous."""
    choices = [axis for axis in axes_of(space).values() if isinstance(axis, Choice)]
    if len(choices) < len(axes_of(space)):
        return None
    return math.prod(len(axis.values) for axis in choices)


def changes(space: Space, sample: Mapping[str, Any]) -> dict[str, Any]:
    """The flat settings that a sample stands for, its variant's among them.

    What a sample holds beside the space's own axes, such as `seed`, is passed on.
    """
    settings = {path: value for path, value in sample.items() if path != VARIANT}
    return {**(space.variants[sample[VARIANT]] if space.variants else {}), **settings}


def corners(space: Space) -> Iterator[dict[str, Any]]:
    """Samples that hold every value of a grid or choice, and both ends of every range."""
    axes = {path: axis.corners for path, axis in axes_of(space).items()}
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def enough_corners(space: Space, many: int) -> Iterator[dict[str, Any]]:
    """All corners, or, where these are more than `many`, such as hold every pair of values."""
    axes = {path: axis.corners for path, axis in axes_of(space).items()}
    if len(axes) < 3 or math.prod(map(len, axes.values())) <= many:
        yield from corners(space)
        return
    first = {path: values[0] for path, values in axes.items()}
    for (one, values), (other, others) in itertools.combinations(axes.items(), 2):
        for pair in itertools.product(values, others):
            yield {**first, **dict(zip((one, other), pair, strict=True))}


def label(space: Space, sample: Mapping[str, Any]) -> str:
    """A sample in short: its variant, then its values, as the keys of `published` are."""
    keys = [VARIANT] if space.variants else []
    return ", ".join(str(sample[key]) for key in [*keys, *space.settings])


def published_figure(space: Space, sample: Mapping[str, Any]) -> float | None:
    """The paper's figure for a sample, if it gives one."""
    return space.published.get(label(space, sample))
