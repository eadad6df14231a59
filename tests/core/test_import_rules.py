"""What the core may import, and what importing it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cotbert_core

CORE = Path(cotbert_core.__file__).parent
FILES = sorted(CORE.rglob("*.py"))
FORBIDDEN = {"ray", "mlflow", "pipelines", "cluster", "tune_spaces"}


def imported(source):
    """First names of all modules that a source text imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_the_walk_finds_imports_of_all_kinds():
    source = "import ray.train\ndef f():\n    from mlflow import x\n    import os, pipelines.cli"
    assert set(imported(source)) == {"ray", "mlflow", "os", "pipelines"}
    assert len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CORE)))
def test_the_core_knows_no_cluster(path):
    assert not FORBIDDEN & set(imported(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "statement",
    [
        "import cotbert_core",
        "import cotbert_core.settings",
        "from cotbert_core import TEMPLATES, UserError",
    ],
)
def test_light_parts_import_without_torch(statement):
    heavy = "{'torch', 'transformers', 'tokenizers', 'scipy', 'ray', 'mlflow'}"
    code = f"import sys; {statement}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert set(cotbert_core.__all__) <= {*cotbert_core._HOME, "__version__"}
    assert all(getattr(cotbert_core, name) is not None for name in cotbert_core.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Encoder'"):
        _ = cotbert_core.Encoder
