"""How many workers of `cotbert embed` run when the input has fewer shards."""

from __future__ import annotations

import json

import pytest

from pipelines.cli import main

pytestmark = pytest.mark.usefixtures("without_ray")


def test_fewer_shards_than_workers_are_said(tmp_path, bert_folder, capsys):
    (tmp_path / "a.txt").write_text("A man\nTwo dogs run\n")
    words = ["embed", bert_folder, "--input", str(tmp_path / "a.txt"), "--workers", "50"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 0
    assert "note: --workers is 50 and 1 will run: 1 shards of the input" in capsys.readouterr().err
    assert json.loads((tmp_path / "out" / "result.json").read_text())["workers"] == 1
