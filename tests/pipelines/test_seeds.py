"""Several seeds of one run: how they are named, their spread, and the command."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.options.shared import parse_seeds
from pipelines.training.metrics_log import read_rows
from pipelines.training.multi_seed import spread


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("1", (0,)), ("3,5,8", (3, 5, 8)), ("7,", (7,))]
)
def test_seeds_are_a_count_or_a_list(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "-1", "1,1", "1,-2", "two", "1.5", ",", "1,,"])
def test_seeds_that_are_neither_are_refused(text):
    with pytest.raises(UserError, match=f"seeds is '{text}': give a number"):
        parse_seeds(text)


def test_the_spread_is_the_sample_standard_deviation():
    values = [70.0, 71.0, 75.0]
    mean = sum(values) / 3
    slow = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
    expected = {"mean": mean, "spread": slow, "min": 70.0, "max": 75.0}
    assert spread(values) == pytest.approx(expected)
    assert spread(values)["spread"] != pytest.approx(statistics.pstdev(values))
    assert spread([4.0]) == {"mean": 4.0, "spread": 0.0, "min": 4.0, "max": 4.0}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    subjects = ("A man", "Two dogs", "The children", "She")
    ends = ("on the stage.", "in the green field", "after the answer.")
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(f"{s} walks {e}" for s in subjects for e in ends), encoding="utf-8")
    return path


def own_scores(monkeypatch):
    """The encoders that are scored untouched from now on."""
    from pipelines.training import baseline

    scored, real = [], baseline.score_untouched

    def counted(encoder, *more):
        scored.append(encoder)
        return real(encoder, *more)

    monkeypatch.setattr(baseline, "score_untouched", counted)
    return scored


def curve(run):
    """The losses and dev scores of a run by step."""
    rows = read_rows(run / "metrics.jsonl")
    return {step: [row.get(n) for n in ("loss", "dev_spearman")] for step, row in rows.items()}


@pytest.mark.ray_local
def test_train_with_seeds_reports_mean_and_spread_and_continues(
    ray_here, own_store, bert_folder, text, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    sets = ("batch_size=4", "max_steps=2", "eval_every=1", "workers=1", "precision=fp32")
    command = ["train", "quickstart", "--encoder", bert_folder, "--corpus", str(text)]
    command += ["--seeds", "4,9", "--output", str(tmp_path / "runs")]
    command += [part for item in sets for part in ("--set", item)]
    scored = own_scores(monkeypatch)
    assert main(command) == 0
    assert scored == [bert_folder], "once for both seeds"
    result = json.loads((tmp_path / "runs" / "result.json").read_text())
    each = [
        json.loads((tmp_path / "runs" / f"seed-{s}" / "result.json").read_text()) for s in (4, 9)
    ]
    assert [r["seed"] for r in each] == [4, 9]
    assert each[0]["loss"] != each[1]["loss"]
    scores = [r["dev_spearman"] for r in each]
    assert result["dev_spearman_mean"] == pytest.approx(statistics.fmean(scores))
    assert result["dev_spearman_spread"] == pytest.approx(statistics.stdev(scores))
    shown = capsys.readouterr().out
    for one in each:
        assert one["baseline_spearman"] == result["baseline_spearman"]
        assert one["baseline"] == result["baseline"]
    runs = (result["mlflow_run_id"], *(one["mlflow_run_id"] for one in each))
    for run_id in runs:
        logged = own_store.get_metric_history(run_id, "baseline_spearman")
        assert [(m.step, m.value) for m in logged] == [(0, result["baseline_spearman"])]
        assert own_store.get_run(run_id).data.tags["baseline"] == result["baseline"]
        assert own_store.get_run(run_id).data.params["dev"] == "built-in pairs"
    mean, baseline = result["dev_spearman_mean"], result["baseline_spearman"]
    last = shown.split("\n\n")[-1].splitlines()[0]
    assert f"he mean of 2 seeds scores {mean:.2f} on dev (built-in pairs): " in last
    assert f"{abs(mean - baseline):.2f} {'better' if mean > baseline else 'worse'} than" in last
    assert "dev_spearman_min" in shown
    assert "dev_spearman_max" in shown
    child = own_store.get_run(each[1]["mlflow_run_id"])
    assert child.data.tags["mlflow.parentRunId"] == result["mlflow_run_id"]

    # Killed during the second seed: the first one is kept, the second begins where it was.
    (tmp_path / "runs" / "result.json").unlink()
    (tmp_path / "runs" / "seed-9" / "result.json").unlink()
    kept = (tmp_path / "runs" / "seed-4" / "result.json").stat().st_mtime_ns
    assert main([*command, "--resume"]) == 0
    assert scored == [bert_folder], "kept for a resumed job"
    again = json.loads((tmp_path / "runs" / "result.json").read_text())
    assert again["dev_spearman_mean"] == result["dev_spearman_mean"]
    assert again["mlflow_run_id"] == result["mlflow_run_id"]
    assert (tmp_path / "runs" / "seed-4" / "result.json").stat().st_mtime_ns == kept

    # The second run has trained in the process of the first; here it has one of its own.
    alone = [word for word in command if word not in ("--seeds", "4,9")]
    alone[alone.index("--output") + 1] = str(tmp_path / "alone")
    assert main([*alone, "--set", "seed=9"]) == 0
    assert curve(tmp_path / "alone") == curve(tmp_path / "runs" / "seed-9")
    assert curve(tmp_path / "alone") != curve(tmp_path / "runs" / "seed-4")
