"""Every benchmark imports: type checks leave benchmarks out, and CI runs none of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import benchmarks

NAMES = sorted(path.stem for path in Path(benchmarks.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_imports(name):
    assert importlib.import_module(f"benchmarks.{name}")
