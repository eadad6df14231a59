"""Options declared as fields of a frozen dataclass, which give their name, type and default.

A field `top: int = Option("return this many rows", "K", unit="rows").field(10)` is the option
`--top K`; without a default, `top: Annotated[int, Option(...)]` is a required one. A field whose
type is another such dataclass adds its fields; a field that may be one of several dataclasses is an
option that chooses one of them by its `name`. A field without an Option is not on the command line.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, Field, dataclass, fields, is_dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cotbert_core.errors import UserError

# Titles in `--help`, in this order; "--method NAME" stands before the last two.
ARGUMENTS, INPUT, CLEANING, MODEL, SCORES = "arguments", "input", "cleaning", "model", "scores"
TRAINING, SEARCH, SERVICE, RESOURCES = "training", "search", "service", "resources"
ROWS, HELD_OUT, REWRITING = "sampling and duplicates", "held-out documents", "rewriting"
SELECTION = "model selection"  # the dev sets that choose a step or a trial
OUTPUT, GENERAL = "output", "general"
TITLES = (
    *(ARGUMENTS, INPUT, CLEANING, ROWS, HELD_OUT, REWRITING, MODEL, SCORES, TRAINING, SELECTION),
    *(SEARCH, SERVICE, RESOURCES),
)
LAST_TITLES = (OUTPUT, GENERAL)

Model = TypeVar("Model")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Option:
    """The description of an option for `--help`, and how its value is parsed.

    help: what the option does, without its default. unit: unit of a number, shown after its
    default. default: description of the default, if the field's own value (None) is not clear.
    flag: the option's name, if it differs from the field's. old_flags: earlier names, which still
    work, with a warning. obsolete: why the option is no longer needed; it is accepted with this
    warning, does nothing and is not shown. append: the option may be repeated, with one value each
    time. exclusive: options with the same value here exclude each other. path: "input" for a text
    that names an input, "name" for one that may be a path; a field of type Path is always a path.
    may_be_empty: whether an empty text is a value. convert: function from a value of type `kind` to
    the field's value, which may raise UserError.
    """

    help: str
    metavar: str | None = None
    _: KW_ONLY
    group: str = ""
    unit: str = ""
    default: str = ""
    flag: str = ""
    old_flags: tuple[str, ...] = ()
    obsolete: str = ""
    positional: bool = False
    append: bool = False
    exclusive: str = ""
    path: Literal["", "input", "name"] = ""
    may_be_empty: bool = False
    convert: Callable[[Any], Any] | None = None
    kind: type = str

    def field(self, default: Value) -> Value:
        """Return the field of a dataclass with this option and default."""
        return dataclass_field(default=default, metadata={Option: self})


@dataclass(frozen=True)
class Declared:
    """An option and its field.

    kind: type of one value. many: whether it takes several values. of_variant: whether it belongs
    to one of several dataclasses, and may therefore be missing.
    """

    field: str
    option: Option
    kind: type
    many: bool
    choices: tuple[str, ...]
    default: Any
    of_variant: bool = False

    @property
    def name(self) -> str:
        """The option's name without leading dashes."""
        return self.option.flag.removeprefix("--") or self.field.replace("_", "-")

    @property
    def required(self) -> bool:
        return self.default is MISSING and not self.of_variant

    @property
    def help(self) -> str:
        """The text for `--help`, with the default at its end."""
        shown = self.option.default or self._shown_default()
        return f"{self.option.help} (default: {shown})" if shown else self.option.help

    def _shown_default(self) -> str:
        if self.kind is bool or self.default in (MISSING, None, ()):
            return ""
        unit = self.option.unit.removesuffix("s") if self.default == 1 else self.option.unit
        comma = "," if unit else ""  # 100,000 rows, but port 8000
        shown = format(self.default, f"{comma}g") if self.kind is float else self.default
        shown = format(self.default, comma) if self.kind is int else shown
        return f"{shown} {unit}".strip()


def declared(model: type) -> Iterator[Declared]:
    """Yield the options of a dataclass; a field with a nested dataclass yields that one's."""
    seen = set()
    for one in _all_declared(model, GENERAL):
        if one.field not in seen and not one.option.obsolete:  # variants may share an option
            seen.add(one.field)
            yield one


def obsolete(model: type) -> list[Declared]:
    """Return the options of a dataclass that are no longer needed."""
    return [one for one in _all_declared(model, GENERAL) if one.option.obsolete]


def _all_declared(model: type, group: str) -> Iterator[Declared]:
    hints = get_type_hints(model, include_extras=True)
    for field in fields(model):
        hint, option = _annotation(field, hints[field.name])
        variants = _variants(hint)
        if option is None:
            yield from _all_declared(hint, group) if is_dataclass(hint) else ()  # type: ignore[arg-type]
        else:
            option = replace(option, group=option.group or group)
            kind, many, choices = (
                _value_type(hint, option) if not variants else (str, False, (*variants,))
            )
            yield Declared(field.name, option, kind, many, choices, field.default)
            for name, variant in variants.items():
                for one in _all_declared(variant, f"--{field.name} {name}"):
                    yield replace(one, of_variant=True)


def build(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Return the dataclass built from the given values and its defaults, which may raise."""
    hints = get_type_hints(model, include_extras=True)
    values: dict[str, Any] = {}
    for field in fields(model):  # type: ignore[arg-type]
        hint, option = _annotation(field, hints[field.name])
        if option is None and is_dataclass(hint):
            values[field.name] = build(hint, given)  # type: ignore[arg-type]
        elif variants := _variants(hint):
            values[field.name] = _build_variant(field.name, variants, given)
        elif field.name in given:
            values[field.name] = _value(given[field.name], option)
    return model(**values)


def _value(given: Any, option: Option | None) -> Any:
    if option is not None and option.convert is not None:
        return option.convert(given)
    return tuple(given) if isinstance(given, list) else given


def _build_variant(field: str, variants: Mapping[str, type], given: Mapping[str, Any]) -> Any:
    """Return the chosen one of several dataclasses; UserError for an option of another one."""
    chosen = given[field]
    own = {one.field: one for one in declared(variants[chosen])}
    for name, variant in variants.items():
        wrong = [o for o in declared(variant) if o.field in given and o.field not in own]
        if wrong:
            raise UserError(
                f"--{wrong[0].name} belongs to --{field} {name} and the {field} is {chosen}: leave "
                "it out"
            )
    missing = [one for one in own.values() if one.required and one.field not in given]
    if missing:
        raise UserError(f"--{field} {chosen} has no --{missing[0].name}: give that too")
    return build(variants[chosen], given)


def _annotation(field: Field[Any], hint: Any) -> tuple[Any, Option | None]:
    """Return the type without None, and the field's Option or the type's last annotation that is
    one."""
    option = field.metadata.get(Option)
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        option = next((note for note in reversed(notes) if isinstance(note, Option)), option)
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        hint = kinds[0] if len(kinds) == 1 else hint
    return hint, option


def _variants(hint: Any) -> dict[str, type]:
    """Return by name the dataclasses that a field may hold; empty for any other type."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return {kind.name: kind for kind in kinds} if all(map(is_dataclass, kinds)) else {}


def _value_type(hint: Any, option: Option) -> tuple[type, bool, tuple[str, ...]]:
    """Return the type of one value, whether there may be several, and the choices."""
    if option.convert is not None:
        return option.kind, False, ()
    if get_origin(hint) is tuple:
        kind, _, choices = _value_type(get_args(hint)[0], option)
        return kind, True, choices
    if get_origin(hint) is Literal:
        return str, False, get_args(hint)
    if hint not in (str, int, float, bool, Path):
        raise TypeError(f"{hint} cannot be the type of an option")
    return hint, False, ()
