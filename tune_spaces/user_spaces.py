"""Search spaces in users' files: YAML, or Python with a function `space()`."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, unknown
from tune_spaces.axes import Axis, Choice, choice, grid, is_number, loguniform, uniform
from tune_spaces.builtin_spaces import SPACES
from tune_spaces.search_space import VARIANT, Space, size

YAML_ENDINGS = (".yaml", ".yml")
PYTHON_ENDING = ".py"
# The name of an axis in YAML -> the function that makes it.
LISTS = {"grid": grid, "choice": choice}
RANGES = {"uniform": uniform, "loguniform": loguniform}
EXAMPLES = "{grid: [a, b]}, {choice: [a, b]}, {uniform: [low, high]} or {loguniform: [low, high]}"


def open_space(name_or_file: str) -> Space:
    """Return a space by its name in SPACES, or from a file; UserError if it is not valid."""
    ending = Path(name_or_file).suffix.lower()
    if ending not in (*YAML_ENDINGS, PYTHON_ENDING):
        if name_or_file not in SPACES:
            raise unknown("space", name_or_file, SPACES)
        return SPACES[name_or_file]()
    path = Path(name_or_file)
    space = _run(path) if ending == PYTHON_ENDING else _parse(path)
    fault = _fault(space)
    if fault:
        raise _error(path, fault)
    return space


def _error(path: Path, fault: str) -> UserError:
    return UserError(f"space file {str(path)!r}: {fault}")


def _fault(space: Space) -> str | None:
    """Return what is wrong with a space; None if it is valid."""
    for name in ("settings", "variants"):
        if not isinstance(given := getattr(space, name), Mapping):
            return f"{name} is {given!r}: give a dictionary"
    if not space.settings and not space.variants:
        return "it has no settings and no variants; give one of them"
    if VARIANT in space.settings:
        return f"{VARIANT!r} is not a setting; put settings that change together under variants"
    for setting, axis in space.settings.items():
        if not (isinstance(axis, Axis) and axis.is_valid):
            return (
                f"{setting} is {axis!r}: it must be a grid, a choice or a range with two ends; "
                "give tune.grid_search, choice, uniform, loguniform, randint or the like"
            )
    if repeated_value := _repeated_value(space):
        return repeated_value
    variants: Mapping[str, Any] = space.variants
    for name, variant in variants.items():
        if not isinstance(variant, Mapping):
            return f"variant {name} is {variant!r}: give settings and their values"
        repeated = sorted(space.settings.keys() & variant.keys())
        if repeated:
            return f"{repeated[0]} is in settings and in variant {name}; keep it in one of them"
    return None


def _repeated_value(space: Space) -> str | None:
    """Return which setting has a value twice, so that the same trial would run twice.

    In a choice beside a range the value is only sampled twice as often.
    """
    finite = size(space) is not None
    for setting, axis in space.settings.items():
        values = axis.values if isinstance(axis, Choice) and (axis.grid or finite) else ()
        if twice := [value for place, value in enumerate(values) if value in values[:place]]:
            return f"the values of {setting} hold {twice[0]!r} twice; give each value once"
    return None


def _run(path: Path) -> Space:
    """Return the result of the function `space` of a Python file."""
    if not path.is_file():
        raise _error(path, "there is no such file; give a name of `cotbert spaces` or a file")
    try:
        space = runpy.run_path(str(path), run_name="space_file").get("space", _missing)()
    except (Exception, SystemExit) as error:  # a script may end with sys.exit()
        raise _error(path, f"it fails with {type(error).__name__}: {error}") from None
    if space is _missing:
        raise _error(path, "it has no function `space`; write one that returns a tune_spaces.Space")
    if not isinstance(space, Space):
        raise _error(path, f"space() returns a {type(space).__name__}; return a tune_spaces.Space")
    return space


def _missing() -> Any:
    return _missing


def _parse(path: Path) -> Space:
    """Return the space in a YAML file, which has the fields of Space."""
    from tune_spaces.yaml_values import read_yaml  # most commands read no YAML

    try:
        values = read_yaml(path)
    except UserError as error:
        raise _error(path, str(error)) from None
    known = [f.name for f in fields(Space)]
    if not isinstance(values, dict):
        raise _error(path, f"it has no space; give the fields {', '.join(known)}")
    for key in values:
        if key not in known:
            raise _error(path, f"{key!r} is unknown; a space has the fields {', '.join(known)}")
    if "recipe" not in values:
        raise _error(
            path, "it names no recipe; add `recipe: NAME`, one of `cotbert recipes`, to the file"
        )
    if not isinstance(values["recipe"], str):
        raise _error(path, f"recipe is {values['recipe']!r}: give one of `cotbert recipes`")
    return Space(
        name=str(values.get("name", path.stem)),
        purpose=str(values.get("purpose", "")),
        recipe=values["recipe"],
        settings={
            setting: _axis(path, setting, axis)
            for setting, axis in _mapping(path, values, "settings").items()
        },
        variants={
            name: _variant(path, name, variant)
            for name, variant in _mapping(path, values, "variants").items()
        },
        published={
            key: _figure(path, key, figure)
            for key, figure in _mapping(path, values, "published").items()
        },
        source=str(values.get("source", "")),
    )


def _mapping(path: Path, values: Mapping[str, Any], key: str) -> dict[str, Any]:
    given = values.get(key) or {}
    if not isinstance(given, dict):
        raise _error(path, f"{key} is {given!r}: write `name: value` lines under it")
    return {str(name): value for name, value in given.items()}


def _axis(path: Path, setting: str, axis: Any) -> Axis:
    kind, given = next(iter(axis.items())) if isinstance(axis, dict) and axis else (None, None)
    if kind not in {*LISTS, *RANGES} or len(axis) > 1 or not isinstance(given, list) or not given:
        raise _error(path, f"{setting} is {axis!r}: give {EXAMPLES}")
    values = [_value(path, setting, value) for value in given]
    if kind in LISTS:
        return LISTS[kind](values)
    low = 0.0 if kind == "loguniform" else float("-inf")
    if len(values) != 2 or not all(map(is_number, values)) or not low < values[0] < values[1]:
        above = "above 0, " if kind == "loguniform" else ""
        raise _error(path, f"{setting} is {axis!r}: give two numbers, {above}the lower one first")
    return RANGES[kind](*values)


def _variant(path: Path, name: str, variant: Any) -> dict[str, Any]:
    if not isinstance(variant, dict):
        raise _error(path, f"variant {name} is {variant!r}: give settings and their values")
    return {
        str(setting): _value(path, f"{setting} of variant {name}", value)
        for setting, value in variant.items()
    }


def _figure(path: Path, key: str, figure: Any) -> float:
    if not is_number(figure):
        raise _error(path, f"published {key} is {figure!r}: give a number")
    return float(figure)


def _value(path: Path, setting: str, value: Any) -> Any:
    """Return the value of a setting; UserError for several."""
    if isinstance(value, (dict, list)):
        raise _error(
            path, f"{setting} is {value!r}: give one value; a path has dots (method.denoise)"
        )
    return value
