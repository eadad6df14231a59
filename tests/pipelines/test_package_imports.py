"""Which package may import which, and how many modules lie outside the subpackages."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import cotbert_core

ROOT = Path(cotbert_core.__file__).parents[1]
PACKAGES = ("cotbert_core", "pipelines", "tune_spaces", "cluster")
# Modules beside the subpackages, __init__.py not counted.
MOST_LOOSE = {"cotbert_core": 8, "pipelines": 2}


# Read in the first test: at import each worker of pytest-xdist took 0.4 s.
@cache
def modules() -> dict[str, Path]:
    """Every module of the packages by its full name; a package's is its __init__.py."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST) -> set[str]:
    """The modules that a source text imports, wherever in it, and the names taken from them."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


@cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_bytes()) for name, path in modules().items()}


@cache
def names_in() -> dict[str, set[str]]:
    """What each module imports, by its full name."""
    return {name: imported(tree) for name, tree in trees().items()}


@cache
def imports() -> dict[str, set[str]]:
    return {name: imports_of(name) for name in modules()}


def of(package: str, name: str) -> bool:
    """Return whether a name is the package's or of a part of it."""
    return f"{name}.".startswith(f"{package}.")


def imports_of(name: str) -> set[str]:
    """What a module imports; not a package whose own modules are what is taken from it."""
    found = (names_in()[name] & set(modules())) - {name}
    packages = {o for o in found if modules()[o].name == "__init__.py"}
    return found - {p for p in packages if any(of(p, o) and o != p for o in found)}


HEAVY = (
    *("torch", "transformers", "tokenizers", "scipy", "ray", "mlflow", "faiss", "pandas"),
    *("numpy", "pyarrow", "pydantic"),
)
LIGHT = (
    "import cotbert_core, tune_spaces; from cotbert_core import TEMPLATES, UserError; "
    "from pipelines.cli import COMMANDS, build_parser; build_parser(); "
    "from pipelines.options.declare import declared; "
    "[list(declared(one.options)) for one in COMMANDS.values()]"
)


def subpackage(module: str) -> str:
    """Return the subpackage of a module, or the module itself if it lies beside the subpackages."""
    depth = 2 if module.startswith("pipelines") else 1
    return ".".join(module.split(".")[:depth])


def check_order(graph: dict[str, set[str]]) -> None:
    TopologicalSorter(graph).prepare()


def subpackages() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for name, others in imports().items():
        if name in PACKAGES:  # a package's __init__ imports lazily
            continue
        seen = {subpackage(other) for other in others if other not in PACKAGES}
        graph.setdefault(subpackage(name), set()).update(seen - {subpackage(name)})
    return graph


def test_the_walk_sees_imports_of_all_kinds():
    source = "import cotbert_core.files\ndef f():\n    from pipelines.runtime import progress"
    assert imported(ast.parse(source)) == {
        *("cotbert_core.files", "pipelines.runtime", "pipelines.runtime.progress")
    }
    assert len(modules()) > 200


def test_no_files_import_each_other_in_a_circle():
    check_order(imports())
    with pytest.raises(CycleError):
        check_order({**imports(), "cotbert_core.errors": {"pipelines.cli"}})


def test_subpackages_import_one_way():
    """No two subpackages import each other, directly or through others."""
    check_order(subpackages())
    with pytest.raises(CycleError):
        check_order({**subpackages(), "pipelines.runtime": {"pipelines.training"}})


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        (LIGHT, set()),
        ("from pipelines.cli import main; main(['recipes']); main(['templates'])", {"pydantic"}),
        ("import cotbert_core.settings, cluster.jobs", {"pydantic"}),
        ("import pipelines.searching.index", {"pydantic", "numpy", "pyarrow"}),
    ],
)
def test_light_parts_import_nothing_heavy(statement, needed):
    """Help, listings, a user's mistake and `cluster down` answer at once."""
    code = f"import sys; {statement}; print(*set({HEAVY}) & set(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) <= needed


@pytest.mark.parametrize("package", MOST_LOOSE)
def test_modules_lie_in_subpackages(package):
    loose = [path.name for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"]
    assert len(loose) <= MOST_LOOSE[package], loose


@pytest.mark.parametrize(
    ("package", "never"),
    [
        ("cotbert_core", ("pipelines", "cluster", "tune_spaces", "ray", "mlflow")),
        ("tune_spaces", ("pipelines", "cluster")),
        ("cluster", ("pipelines.cli", "pipelines.commands")),
    ],
)
def test_a_package_never_imports_those_above_it(package, never):
    used = {other: name for name in names_in() for other in names_in()[name] if of(package, name)}
    assert {used[o]: o for o in used if any(of(n, o) for n in never)} == {}


def test_a_cluster_knows_commands_and_no_mathematics():
    names = {o for name, others in names_in().items() if of("cluster", name) for o in others}
    others = {n.split(".")[0] for n in names} - {*sys.stdlib_module_names, *PACKAGES}
    assert others == {"ray"}
    assert {n for n in names if of("ray", n) and n.islower()} - {"ray"} == {"ray.job_submission"}
    assert {n for n in names & set(modules()) if of("cotbert_core", n)} - {"cotbert_core"} == {
        *("cotbert_core.errors", "cotbert_core.files", "cotbert_core.messages.redaction"),
        "cotbert_core.training.devices",
    }


def test_only_two_commands_know_the_cluster():
    users = {name for name in names_in() if any(of("cluster", o) for o in names_in()[name])}
    users = {name for name in users if of("pipelines", name)}
    assert users == {"pipelines.commands.cluster", "pipelines.commands.submit"}


def test_nothing_is_printed_beside_the_doors():
    """say and print_output escape control characters and hide passwords."""
    calls = {
        (name, ast.unparse(node.func))
        for name in trees()
        for node in ast.walk(trees()[name])
        if isinstance(node, ast.Call)
    }
    printing = ("print", "sys.stdout.write", "sys.stderr.write")
    assert {name for name, call in calls if call in printing} == {"pipelines.runtime.progress"}
