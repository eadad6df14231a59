"""Build argparse options from a dataclass, which holds the defaults: only given values are set."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.options.declare import (
    ARGUMENTS,
    GENERAL,
    LAST_TITLES,
    TITLES,
    Declared,
    declared,
    obsolete,
)
from pipelines.runtime.progress import say

OnAdded = Callable[[Declared, argparse.Action], None]


def _value_type(one: Declared) -> Callable[[str], Any] | None:
    """Return the function that converts an argument to a value; None keeps the text."""
    if one.kind is Path:
        return _local_path
    if one.kind is not str:
        return one.kind
    return None if one.option.may_be_empty or one.option.positional else _some_text


def _some_text(text: str) -> str:
    """Return a text that is not empty; an unset variable of the shell gives an empty one, which
    would count as no value."""
    if not text:
        raise argparse.ArgumentTypeError(
            "'' is an empty text: give a value, or leave the option out"
        )
    return text


def _local_path(text: str) -> Path:
    """Return a path; an address is refused, of which `Path` would make a folder named `s3:`."""
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is an address: give a path on a local disk or on storage that is mounted"
        )
    # A shell leaves the ~ of --output=~/runs to the program.
    return Path(os.path.expanduser(_some_text(text)))


def add_arguments(
    parser: argparse.ArgumentParser,
    model: type,
    on_added: OnAdded = lambda one, action: None,
) -> None:
    """Add the options of a dataclass to a parser that was made without `add_help`.

    on_added: called with each option and its argparse action.
    """
    by_title: dict[str, list[Declared]] = {}
    for one in declared(model):
        by_title.setdefault(ARGUMENTS if one.option.positional else one.option.group, []).append(
            one
        )
    by_title.setdefault(GENERAL, [])
    exclusive: dict[str, Any] = {}
    for title in sorted(by_title, key=_place):
        group = parser.add_argument_group(title)
        for one in by_title[title]:
            where = group
            if word := one.option.exclusive:
                if word not in exclusive:
                    exclusive[word] = group.add_mutually_exclusive_group()
                where = exclusive[word]
            on_added(one, _add(where, one))
    group.add_argument(
        "--verbose",
        action="store_true",
        help="show the output of Ray, and errors with their traceback",
    )
    group.add_argument(
        "-q", "--quiet", action="store_true", help="show only warnings, errors and the result"
    )
    group.add_argument("-h", "--help", action="help", help="show this help and exit")
    for one in obsolete(model):
        flag, why = f"--{one.name}", one.option.obsolete
        hidden: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        parser.add_argument(flag, action=_Obsolete, nargs=0, const=why, **hidden)
    parser.usage = _usage(list(declared(model)))


def _place(title: str) -> int:
    if title in LAST_TITLES:
        return len(TITLES) + 1 + LAST_TITLES.index(title)
    return TITLES.index(title) if title in TITLES else len(TITLES)


def _add(group: Any, one: Declared) -> Any:
    shared: dict[str, Any] = {"default": argparse.SUPPRESS, "help": one.help.replace("%", "%%")}
    if one.kind is bool:
        return group.add_argument(f"--{one.name}", action="store_true", dest=one.field, **shared)
    shared |= {"metavar": one.option.metavar, "type": _value_type(one)}
    shared["choices"] = one.choices or None
    if one.option.positional:
        return group.add_argument(one.field, nargs=_nargs(one), **shared)
    shared |= {"dest": one.field, "required": one.required}
    shared |= {"action": "append"} if one.option.append else {"nargs": _nargs(one)}
    added = group.add_argument(f"--{one.name}", **shared)
    for flag in one.option.old_flags:
        hidden = {**shared, "help": argparse.SUPPRESS, "action": _Renamed, "const": one.name}
        group.add_argument(flag, **hidden)
    return added


def _nargs(one: Declared) -> str | None:
    if one.option.positional:
        return ("+" if one.required else "*") if one.many else (None if one.required else "?")
    return "+" if one.many else None


class _Renamed(argparse.Action):
    """Accept an option's old name, with a warning that names the new one (`const`)."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        say(f"warning: {option_string} is now called --{self.const}")
        setattr(namespace, self.dest, values)


class _Obsolete(argparse.Action):
    """Accept an option that does nothing any more, with a warning that says why (`const`)."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        say(f"warning: {option_string} is no longer needed: {self.const}")


def _usage(options: list[Declared]) -> str:
    """Return a usage line with the required arguments only; argparse's lists every option."""
    words = ["%(prog)s"]
    for one in options:
        if one.option.positional:
            name = one.option.metavar or "|".join(one.choices)
            dots = f"{name} ..." if one.many else name
            words.append(dots if one.required else f"[{dots}]")
        elif one.required:
            value = one.option.metavar or "|".join(one.choices)
            words.append(f"--{one.name} {value}{' ...' if one.many else ''}")
    return " ".join([*words, "[OPTION ...]"])
