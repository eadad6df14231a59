"""What this package may import, and who may import it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import cluster
import pipelines

HERE = Path(cluster.__file__).parent
JOBS = Path(pipelines.__file__).parent


def imported(path):
    """Full names of all modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_a_cluster_knows_commands_and_no_mathematics():
    names = {name for path in HERE.glob("*.py") for name in imported(path)}
    own = {n for n in names if n.split(".")[0] not in sys.stdlib_module_names}
    assert {n.split(".")[0] for n in own} == {*("cluster", "cotbert_core", "pipelines", "ray")}
    assert {n for n in own if n.startswith("ray")} == {"ray.job_submission"}
    assert {n for n in own if n.startswith("cotbert_core")} == {
        *("cotbert_core.errors", "cotbert_core.files"),
        *("cotbert_core.messages.redaction", "cotbert_core.settings"),
    }


def test_only_its_two_commands_know_the_cluster():
    users = {
        path.relative_to(JOBS).as_posix()
        for path in JOBS.rglob("*.py")
        if any(name.split(".")[0] == "cluster" for name in imported(path))
    }
    assert users == {"cli.py", "commands/cluster.py", "commands/submit.py"}


def test_the_cluster_is_handed_the_command_line():
    names = {name for path in HERE.glob("*.py") for name in imported(path)}
    assert not [n for n in names if n == "pipelines.cli" or n.startswith("pipelines.commands")]
