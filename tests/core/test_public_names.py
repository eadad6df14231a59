"""The names that docs/models.md promises to programs are there, with the arguments named there."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
ROW = re.compile(r"^\| (.*`cotbert_core\..*) \| (.*) \|$", re.MULTILINE)
CALL = re.compile(r"`(\w*)\(([\w, *]+)\)`")


def public(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def test_the_documented_names_take_the_documented_arguments() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8").partition("## In Python")[2])
    assert len(rows) == 7
    checked = 0
    for names, what in rows:
        found = [public(name) for name in re.findall(r"`([\w.]+)`", names)]
        for method, arguments in CALL.findall(what):
            # A name before the brackets is a method, or the class itself.
            called = [getattr(found[0], method, found[0])] if method else found
            for one in called:
                known = [name for name in inspect.signature(one).parameters if name != "self"]
                wanted = [name for name in arguments.split(", ") if name != "*"]
                assert known[: len(wanted)] == wanted, one
                checked += 1
    assert checked == 8
