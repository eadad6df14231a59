"""Private parts of other packages are used in one file, or with a reason beside the use."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import cotbert_core

ROOT = Path(cotbert_core.__file__).parents[1]
PACKAGES = ("cotbert_core", "pipelines", "tune_spaces", "cluster", "benchmarks")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ALLOWED = ROOT / "pipelines" / "runtime" / "ray_private.py"
REASON = "# private: "
# A name of one leading underscore; a dotted text with such a part, as a logger's or a patch's.
PRIVATE = re.compile(r"_(?!_)\w+")
DOTTED = re.compile(r"[A-Za-z]\w*(\.\w+)*\._(?!_)\w+(\.\w+)*")
# argparse has no public way to change what help says of a default, or to list options.
BY_NAME = ("getattr", "hasattr", "setattr", "delattr")
WHAT_TO_DO = (
    "use the public way; where there is none, write the reason on the line or the line above as "
    f"`{REASON}why`, or, for a part of Ray, move the use into pipelines/runtime/ray_private.py"
)


def is_private(module: str) -> bool:
    parts = module.split(".")
    return "internal" in parts or any(map(PRIVATE.fullmatch, parts))


def foreign_names(tree: ast.AST) -> set[str]:
    """The names that a file binds to modules of other packages."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in PACKAGES:
            names |= {a.asname or a.name for a in node.names}
    return names


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of each use of a private part, and of each change to another's module."""
    foreign = foreign_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = node.value
            own = isinstance(base, ast.Name) and base.id in ("self", "cls")
            changed = isinstance(node.ctx, ast.Store) and (
                (isinstance(base, ast.Name) and base.id in foreign)
                or (isinstance(base, ast.Call) and ast.unparse(base.func) == "import_module")
            )
            if (PRIVATE.fullmatch(node.attr) and not own) or changed:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if is_private(a.name))
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
            yield from ((node.lineno, name) for name in names if is_private(name))
        elif isinstance(node, ast.Call):
            named = ast.unparse(node.func) in BY_NAME and len(node.args) > 1
            asked = [node.args[1].value] if named and isinstance(node.args[1], ast.Constant) else []
            for word in [*asked, *(k.arg for k in node.keywords)]:
                if isinstance(word, str) and PRIVATE.fullmatch(word):
                    yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and PRIVATE.fullmatch(str(key.value)):
                    yield key.lineno, ast.unparse(key)
        elif isinstance(node, ast.Constant) and DOTTED.fullmatch(str(node.value)):
            yield node.lineno, ast.unparse(node)


def overrides(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of each method that replaces a private method of another package's class."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not node.bases:
            continue
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
        for method in (m for m in methods if PRIVATE.fullmatch(m.name)):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            cls = getattr(importlib.import_module(module), node.name)
            bases = [b for b in cls.__mro__ if b.__module__.split(".")[0] not in PACKAGES]
            if any(method.name in vars(base) for base in bases):
                yield method.lineno, f"{node.name}.{method.name}"


def without_reason(source: str, found: Iterable[tuple[int, str]]) -> list[str]:
    """The uses that have no reason on their line or the line above."""
    lines = ["", *source.splitlines()]
    bare = {(line, use) for line, use in found if REASON not in lines[line - 1] + lines[line]}
    return [f"line {line}: {use}" for line, use in sorted(bare)]


def test_private_parts_are_used_with_a_reason():
    assert len(FILES) > 200
    bare = {}
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        found = without_reason(source, [*uses(tree), *overrides(path, tree)])
        if found and path != ALLOWED:
            bare[path.relative_to(ROOT).as_posix()] = found
    assert not bare, f"private parts are used without a reason in {bare}: {WHAT_TO_DO}"


@pytest.mark.parametrize(
    "source",
    [
        "import ray._private.worker",
        "from ray._private import ray_constants",
        "from ray.train.v2._internal.exceptions import RayTrainError",
        "from ray.train.torch.config import _TorchBackend",
        "from google.internal import part",
        "model.config._attn_implementation",
        "super()._get_help_string(action)",
        "getattr(config, '_commit_hash', None)",
        "ray.init(_temp_dir='/tmp')",
        "ray.init(**{'_temp_dir': '/tmp'})",
        "logging.getLogger('ray._private.runtime_env')",
        "from mlflow.store.db import utils\nutils.MAX_RETRY_COUNT = 2",
        "import_module('torch.distributed.rendezvous').TCPStore = store",
    ],
)
def test_the_search_sees_uses_of_all_kinds(source):
    assert len(without_reason(source, uses(ast.parse(source)))) == 1
    *before, last = source.split("\n")
    reasoned = "\n".join([*before, f"{REASON}why", last])
    assert not without_reason(reasoned, uses(ast.parse(reasoned)))


@pytest.mark.parametrize(
    "source",
    [
        "self._plan = cls._plans[0]",
        "import __future__",
        "from pipelines.storage import paths\npaths.__name__",
        "text = 'a._b c'",
        "def _own(): ...",
        "import os\nos.environ['A'] = 'b'",
    ],
)
def test_the_search_leaves_own_parts_alone(source):
    assert not list(uses(ast.parse(source)))
