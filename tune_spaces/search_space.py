"""A space, what Ray Tune takes of it, and what becomes of a sample.

A setting's axis is a grid (`tune.grid_search`), a choice, or a range with two ends; each of them
can be tried at its corners before anything starts, which the other domains of Ray Tune cannot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# The key of a sample that tells which variant was drawn; no setting has this name.
VARIANT = "variant"


@dataclass(frozen=True)
class Space:
    """What a sweep varies.

    purpose: one sentence. recipe: the one that the space is made for.
    settings: flat path of a setting -> its axis.
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


def param_space(space: Space) -> dict[str, Any]:
    """What ray.tune.Tuner samples: an axis for each setting, and one for the variants."""
    from ray import tune

    axes = {VARIANT: tune.grid_search(list(space.variants))} if space.variants else {}
    return {**axes, **space.settings}


def size(space: Space) -> int | None:
    """How many different trials there are; None when an axis is continuous."""
    count = len(space.variants) or 1
    for axis in space.settings.values():
        values = values_of(axis)
        if values is None:
            return None
        count *= len(values)
    return count


def changes(space: Space, sample: Mapping[str, Any]) -> dict[str, Any]:
    """The flat settings that a sample stands for, its variant's among them.

    What a sample holds beside the space's own axes, such as `seed`, is passed on.
    """
    settings = {path: value for path, value in sample.items() if path != VARIANT}
    return {**(space.variants[sample[VARIANT]] if space.variants else {}), **settings}


def corners(space: Space) -> Iterator[dict[str, Any]]:
    """Samples that hold every value of a grid or choice, and both ends of every range."""
    axes = _at_corners(space)
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def enough_corners(space: Space, many: int) -> Iterator[dict[str, Any]]:
    """All corners, or, where these are more than `many`, such as hold every pair of values."""
    axes = _at_corners(space)
    if len(axes) < 3 or math.prod(map(len, axes.values())) <= many:
        yield from corners(space)
        return
    first = {path: values[0] for path, values in axes.items()}
    for (one, values), (other, others) in itertools.combinations(axes.items(), 2):
        for pair in itertools.product(values, others):
            yield {**first, **dict(zip((one, other), pair, strict=True))}


def _at_corners(space: Space) -> dict[str, list[Any]]:
    axes: dict[str, list[Any]] = {VARIANT: list(space.variants)} if space.variants else {}
    for path, axis in space.settings.items():
        values = values_of(axis)
        axes[path] = list(ends_of(axis)) if values is None else values
    return axes


def label(space: Space, sample: Mapping[str, Any]) -> str:
    """A sample in short: its variant, then its values, as the keys of `published` are."""
    keys = [VARIANT] if space.variants else []
    return ", ".join(str(sample[key]) for key in [*keys, *space.settings])


def published_figure(space: Space, sample: Mapping[str, Any]) -> float | None:
    """The paper's figure for a sample, if it gives one."""
    return space.published.get(label(space, sample))


def values_of(axis: Any) -> list[Any] | None:
    """All values of a grid or choice; None of anything else."""
    if isinstance(axis, Mapping) and set(axis) == {"grid_search"}:
        return list(axis["grid_search"])
    categories = getattr(axis, "categories", None)
    return None if categories is None else list(categories)


def ends_of(axis: Any) -> tuple[Any, Any]:
    """The least and the largest value of a range; infinite, or None, where it has no ends."""
    from ray.tune.search.sample import Integer

    lower: Any = getattr(axis, "lower", None)
    upper: Any = getattr(axis, "upper", None)
    step = step_of(axis)
    if step is not None and math.isfinite(lower) and math.isfinite(upper):
        first, last = multiples_of(axis)
        # 3 * 0.1 is above 0.3.
        return max(first * step, lower), min(last * step, upper)
    if isinstance(axis, Integer):  # Ray Tune draws whole numbers below the upper one
        return lower, upper - 1
    return lower, upper


def step_of(axis: Any) -> float | None:
    """Of a range in steps, what all its values are multiples of."""
    sampler = getattr(axis, "sampler", None)
    return getattr(sampler, "q", None)


def multiples_of(axis: Any) -> tuple[int, int]:
    """The least and the largest k of a range in steps, whose values are k times its step."""
    from ray.tune.search.sample import Integer

    step: Any = step_of(axis)
    # Ray Tune draws the upper end too, except for whole numbers in steps of 1.
    upper = axis.upper - 1 if isinstance(axis, Integer) and step == 1 else axis.upper
    return math.ceil(axis.lower / step - 1e-9), math.floor(upper / step + 1e-9)


def is_logarithmic(axis: Any) -> bool:
    """Whether a range is drawn by orders of magnitude."""
    sampler = axis.get_sampler()
    inner = sampler.get_sampler() if step_of(axis) is not None else sampler
    return str(inner) == "LogUniform"


def is_axis(axis: Any) -> bool:
    """Whether this is a grid or choice with values, or a range with two ends."""
    values = values_of(axis)
    if values is not None:
        return bool(values)
    numbers = [end for end in ends_of(axis) if isinstance(end, (int, float))]
    return len(numbers) == 2 and all(map(math.isfinite, numbers)) and numbers[0] <= numbers[1]


def describe(axis: Any) -> str:
    """An axis in words."""
    values = values_of(axis)
    if values is not None:
        return ", ".join(map(str, values))
    lower, upper = ends_of(axis)
    step = step_of(axis)
    scale = ", log-uniform" if is_logarithmic(axis) else ", uniform"
    return f"{lower} to {upper}{scale}{f', in steps of {step}' if step else ''}"
