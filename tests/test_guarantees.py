"""The tests that docs/guarantees.md names are there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"


@functools.cache
def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_each_guarantee_has_its_test():
    named = re.findall(r"([\w/]+\.py)::(\w+)", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 200
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (TESTS / file).is_file() or name not in functions(TESTS / file)
    ]
    assert missing == []
