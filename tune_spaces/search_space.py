"""A search space, its form for Ray Tune, and the settings of a sample.

The axis of a setting is a grid (`tune.grid_search`), a choice, or a range with two ends. The
corners of these can be checked before anything starts, unlike those of Ray Tune's other domains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# The key of a sample that names its variant; no setting has this name.
VARIANT = "variant"


@dataclass(frozen=True)
class Space:
    """The settings that a sweep varies.

    purpose: one sentence. recipe: the recipe that the space is made for.
    settings: flat path of a setting -> its axis.
    variants: name -> flat settings that change together; every trial uses one of them.
    published: a trial's `label` -> its figure in a paper. source: the paper and table.
    """

    name: str
    purpose: str
    recipe: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    source: str = ""


def param_space(space: Space) -> dict[str, Any]:
    """Return the param_space of ray.tune.Tuner: an axis for each setting, and for the variants."""
    from ray import tune

    axes = {VARIANT: tune.grid_search(list(space.variants))} if space.variants else {}
    return {**axes, **space.settings}


def size(space: Space) -> int | None:
    """Return the number of different trials; None if an axis is continuous."""
    count = len(space.variants) or 1
    for axis in space.settings.values():
        values = values_of(axis)
        if values is None:
            return None
        count *= len(values)
    return count


def changes(space: Space, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings of a sample, including those of its variant.

    Other entries of the sample, such as `seed`, are included unchanged.
    """
    settings = {path: value for path, value in sample.items() if path != VARIANT}
    return {**(space.variants[sample[VARIANT]] if space.variants else {}), **settings}


def corners(space: Space) -> Iterator[dict[str, Any]]:
    """Yield all combinations of the values of grids and choices and of both ends of ranges."""
    axes = _at_corners(space)
    for point in itertools.product(*axes.values()):
        yield dict(zip(axes, point, strict=True))


def enough_corners(space: Space, many: int) -> Iterator[dict[str, Any]]:
    """Yield all corners, or, if there are more than `many`, corners with every pair of values."""
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
    """Return a short name of a sample, its variant and values, as in the keys of `published`."""
    keys = [VARIANT] if space.variants else []
    return ", ".join(str(sample[key]) for key in [*keys, *space.settings])


def published_figure(space: Space, sample: Mapping[str, Any]) -> float | None:
    """Return the paper's figure for a sample, if there is one."""
    return space.published.get(label(space, sample))


def values_of(axis: Any) -> list[Any] | None:
    """Return all values of a grid or choice; None for any other axis."""
    if isinstance(axis, Mapping) and set(axis) == {"grid_search"}:
        return list(axis["grid_search"])
    categories = getattr(axis, "categories", None)
    return None if categories is None else list(categories)


def ends_of(axis: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest value of a range; an open end is infinite or None."""
    from ray.tune.search.sample import Integer

    lower: Any = getattr(axis, "lower", None)
    upper: Any = getattr(axis, "upper", None)
    step = step_of(axis)
    if step is not None and math.isfinite(lower) and math.isfinite(upper):
        first, last = multiples_of(axis)
        # 3 * 0.1 is above 0.3.
        return max(first * step, lower), min(last * step, upper)
    if isinstance(axis, Integer):  # Ray Tune samples whole numbers below the upper one
        return lower, upper - 1
    return lower, upper


def step_of(axis: Any) -> float | None:
    """Return the step of a range, of which all its values are multiples; None without steps."""
    sampler = getattr(axis, "sampler", None)
    return getattr(sampler, "q", None)


def multiples_of(axis: Any) -> tuple[int, int]:
    """Return the smallest and the largest k of a range in steps, whose values are k * step."""
    from ray.tune.search.sample import Integer

    step: Any = step_of(axis)
    # Ray Tune samples the upper end too, except for whole numbers in steps of 1.
    upper = axis.upper - 1 if isinstance(axis, Integer) and step == 1 else axis.upper
    return math.ceil(axis.lower / step - 1e-9), math.floor(upper / step + 1e-9)


def is_logarithmic(axis: Any) -> bool:
    """Return whether a range is sampled on a logarithmic scale."""
    sampler = axis.get_sampler()
    inner = sampler.get_sampler() if step_of(axis) is not None else sampler
    return str(inner) == "LogUniform"


def is_axis(axis: Any) -> bool:
    """Return whether an axis is a grid or choice with values, or a range with two ends."""
    values = values_of(axis)
    if values is not None:
        return bool(values)
    numbers = [end for end in ends_of(axis) if isinstance(end, (int, float))]
    return len(numbers) == 2 and all(map(math.isfinite, numbers)) and numbers[0] <= numbers[1]


def describe(axis: Any) -> str:
    """Return a description of an axis for a user."""
    values = values_of(axis)
    if values is not None:
        return ", ".join(map(str, values))
    lower, upper = ends_of(axis)
    step = step_of(axis)
    scale = ", log-uniform" if is_logarithmic(axis) else ", uniform"
    return f"{lower} to {upper}{scale}{f', in steps of {step}' if step else ''}"
