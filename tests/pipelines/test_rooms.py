"""The walls of the house: which room may import which, and how many files lie outside the rooms."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cotbert_core

ROOT = Path(cotbert_core.__file__).parents[1]
PACKAGES = ("cotbert_core", "pipelines", "tune_spaces", "cluster")
# Files beside the rooms, __init__.py not counted.
MOST_LOOSE = {"cotbert_core": 8, "pipelines": 15}


def modules() -> dict[str, Path]:
    """Every module of the packages by its full name; a package's is its __init__.py."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: set[str]) -> set[str]:
    """The known modules that a source text imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names & known


def imports_of(name: str, path: Path) -> set[str]:
    """What a module imports; not a package whose own modules are what is taken from it."""
    found = imported(path.read_text(encoding="utf-8"), set(MODULES)) - {name}
    packages = {o for o in found if MODULES[o].name == "__init__.py"}
    return found - {p for p in packages if any(o.startswith(f"{p}.") for o in found)}


MODULES = modules()
IMPORTS = {name: imports_of(name, path) for name, path in MODULES.items()}


def room(module: str) -> str:
    """The room of a module: a folder of a package, or the file itself where it lies beside them."""
    return (
        ".".join(module.split(".")[:2]) if module.startswith("pipelines") else module.split(".")[0]
    )


def in_order(graph: dict[str, set[str]]) -> list[str]:
    return list(TopologicalSorter(graph).static_order())


def rooms() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for name, others in IMPORTS.items():
        if name in PACKAGES:  # what a package says of itself imports lazily
            continue
        seen = {room(other) for other in others if other not in PACKAGES}
        graph.setdefault(room(name), set()).update(seen - {room(name)})
    return graph


def test_the_walk_sees_imports_of_all_kinds():
    source = "import cotbert_core.files\ndef f():\n    from pipelines.runtime import progress"
    assert imported(source, set(MODULES)) == {
        *("cotbert_core.files", "pipelines.runtime", "pipelines.runtime.progress")
    }
    assert len(MODULES) > 200


def test_no_files_import_each_other_in_a_circle():
    in_order(IMPORTS)
    with pytest.raises(CycleError):
        in_order({**IMPORTS, "cotbert_core.errors": {"pipelines.cli"}})


def test_rooms_import_one_way():
    """A room is above all that it imports; no two are above each other."""
    in_order(rooms())
    with pytest.raises(CycleError):
        in_order({**rooms(), "pipelines.runtime": {"pipelines.training"}})


@pytest.mark.parametrize("package", MOST_LOOSE)
def test_files_lie_in_rooms(package):
    loose = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= MOST_LOOSE[package], loose


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("cotbert_core", ("pipelines", "cluster", "tune_spaces")),
        ("tune_spaces", ("pipelines", "cluster")),
        ("cluster", ("pipelines.cli", "pipelines.commands")),
    ],
)
def test_packages_keep_to_their_side(package, never):
    for name, others in IMPORTS.items():
        if name.split(".")[0] == package:
            assert not [o for o in others if o.startswith(never)], name
