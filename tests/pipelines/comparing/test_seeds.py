"""Several seeds of one run: how they are named, their spread, and the command."""

from __future__ import annotations

import math
import statistics

import pytest
from trainings import SENTENCES, result_of, training

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.options.shared import parse_seeds
from pipelines.training import baseline
from pipelines.training.metrics_log import read_rows, spread


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
    values, mean = [70.0, 71.0, 75.0], 72.0
    slow = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
    expected = {"mean": mean, "spread": slow, "min": 70.0, "max": 75.0}
    assert spread(values) == pytest.approx(expected)
    assert slow != pytest.approx(statistics.pstdev(values))
    collapsed = spread([70.0, math.nan])
    assert all(map(math.isnan, collapsed.values()))
    assert collapsed.keys() == expected.keys()
    assert spread([4.0]) == {"mean": 4.0, "spread": 0.0, "min": 4.0, "max": 4.0}


@pytest.fixture
def scored(monkeypatch):
    """The encoders that are scored untouched from now on."""
    encoders, real = [], baseline.score_untouched
    monkeypatch.setattr(
        baseline, "score_untouched", lambda name, *more: encoders.append(name) or real(name, *more)
    )
    return encoders


def curve(run):
    """The losses and dev scores of a run by step."""
    rows = read_rows(run / "metrics.jsonl")
    return {step: [row.get(n) for n in ("loss", "dev_spearman")] for step, row in rows.items()}


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here", "own_cache")
def test_train_with_seeds_reports_mean_and_spread_and_continues(
    own_store, bert_folder, tmp_path, scored, capsys, written_states
):
    text, runs = tmp_path / "sentences.txt", tmp_path / "runs"
    text.write_text("\n".join(SENTENCES[:12]), encoding="utf-8")
    sets = ("batch_size=4", "max_steps=2", "eval_every=1", "workers=1", "precision=fp32")
    command = training(bert_folder, text, runs, *sets, flags=["--seeds", "4,9"])
    states = written_states(own_store)
    assert main(command) == 0
    # The results of the corpus, of both seeds and of the whole job.
    assert states == ["FINISHED"] * 4, "killed before, it continues and ends its run"
    assert scored == [bert_folder], "once for both seeds"
    result, each = result_of(runs), [result_of(runs / f"seed-{s}") for s in (4, 9)]
    assert [r["seed"] for r in each] == [4, 9]
    assert each[0]["loss"] != each[1]["loss"]
    scores = [r["dev_spearman"] for r in each]
    mean, untouched = statistics.fmean(scores), result["baseline_spearman"]
    assert result["dev_spearman_mean"] == pytest.approx(mean)
    assert result["dev_spearman_spread"] == pytest.approx(statistics.stdev(scores))
    for one in (result, *each):
        assert (one["baseline"], one["baseline_spearman"]) == (result["baseline"], untouched)
        logged = own_store.get_metric_history(one["mlflow_run_id"], "baseline_spearman")
        assert [(m.step, m.value) for m in logged] == [(0, untouched)]
        run = own_store.get_run(one["mlflow_run_id"])
        assert run.data.tags["baseline"] == result["baseline"]
        assert run.data.params["dev"] == "built-in pairs"
    assert run.data.tags["mlflow.parentRunId"] == result["mlflow_run_id"]
    shown = capsys.readouterr().out
    last = shown.split("\n\n")[-1].splitlines()[0]
    assert f"he mean of 2 seeds scores {mean:.2f} on dev (built-in pairs): " in last
    assert f"{abs(mean - untouched):.2f} {'better' if mean > untouched else 'worse'} than" in last
    assert "dev_spearman_min" in shown
    assert "dev_spearman_max" in shown

    # Killed during the second seed: the first one is kept, the second begins where it was.
    (runs / "result.json").unlink()
    (runs / "seed-9" / "result.json").unlink()
    kept = (runs / "seed-4" / "result.json").stat().st_mtime_ns
    assert main(command) == 0
    assert scored == [bert_folder], "kept for a continued job"
    for name in ("dev_spearman_mean", "mlflow_run_id"):
        assert result_of(runs)[name] == result[name]
    assert (runs / "seed-4" / "result.json").stat().st_mtime_ns == kept

    # The second run has trained in the process of the first; here it has one of its own.
    assert main(training(bert_folder, text, tmp_path / "alone", *sets, "seed=9")) == 0
    assert curve(tmp_path / "alone") == curve(runs / "seed-9") != curve(runs / "seed-4")
