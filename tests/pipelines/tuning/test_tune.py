"""A sweep as a user runs it: killed on the way, continued, bad trials stopped, all in MLflow."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest
from forked import Command
from process_tree import kill_first
from trainings import training
from waiting import until

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from pipelines.cli import main
from pipelines.recipes import settings_for
from pipelines.storage.corpus import Corpus
from pipelines.training.dev_sets import graded_sets
from pipelines.training.metrics_log import read_rows
from pipelines.tuning.options import Stopping, TuneOptions
from pipelines.tuning.tune import tune
from tune_spaces import Space, open_space

STEPS, EVERY = 6, 2
SETTINGS = (
    *("batch_size=8", f"max_steps={STEPS}", f"eval_every={EVERY}", "precision=fp32"),
    *("max_length=12", "optimizer.schedule=constant", "workers=1"),
)


def words(space, corpus, output, encoder, *more):
    return training(encoder, corpus, output, *SETTINGS, job=("tune", str(space)), flags=more)


def checked(output):
    """Dev checks that the trials have made, by their names."""
    files = (output / "trials").glob("*/metrics.jsonl")
    return {f.parent.name: sum("dev_spearman" in r for r in read_rows(f).values()) for f in files}


@contextmanager
def begun(command, output, trial):
    """The process of a sweep in which this trial has made a dev check; it ends with the block."""
    with Command(*command, stderr=subprocess.PIPE, text=True) as driver:
        try:
            until(lambda: checked(output).get(trial), 240, driver)
            yield driver
        finally:
            driver.kill()


def done_steps(store, trial):
    """How often each step of a trial was done, by its timings in MLflow. `trial`: its result.

    A repeated step has the same loss, which is sent again only if the driver was killed after it
    had sent the first and before it had noted that.
    """
    logged, losses = (
        store.get_metric_history(trial["mlflow_run_id"], name) for name in ("step_seconds", "loss")
    )
    done = Counter(m.step for m in logged)
    assert {m.step for m in losses} == set(done)
    assert len({(m.step, m.value) for m in losses}) == len(done), "a repeated step has its loss"
    assert Counter(m.step for m in losses) <= done
    return done


@pytest.mark.ray_local
def test_a_killed_sweep_continues_and_bad_trials_are_stopped(
    own_store, rates_corpus, rates, bert_folder, tmp_path, capfd, written_states
):
    output = tmp_path / "sweep"
    command = words(rates, rates_corpus, output, bert_folder, "--asha", str(EVERY))
    command += ["--keep-checkpoints", "all"]  # as if killed before they are deleted, see below
    with begun(command, output, "0001") as driver:
        known = checked(output)["0001"]
        kill_first(driver.pid, "ray::ImplicitFunc")  # the trial's process, as with a lost node
        until(lambda: checked(output)["0001"] > known, 120, driver)
        driver.kill()
        said = driver.stderr.read()
    assert "trial 0001 continues from its last checkpoint: its process died" in said
    assert not (output / "result.json").exists()
    # The first trial as one that was killed after its last step: it has nothing more to report.
    (output / "trials" / "0000" / "result.json").unlink()
    parent = (output / "mlflow_run_id").read_text()
    baseline = (output / "baseline.json").read_text()
    states = written_states(own_store, "mlflow_parent_run_id")
    assert main(command) == 0
    assert states == ["FINISHED"], "killed before, it continues and ends its run"
    captured = capfd.readouterr()
    assert f"continuing the sweep in {output}" in captured.err
    assert "Last result" not in captured.out, "Ray Tune's words for trials that report nothing"
    assert baseline == (output / "baseline.json").read_text(), "not scored again"
    result = read_json(output / "result.json")
    assert [row["name"] for row in result["trials"]] == ["0000", "0001", "0002"]
    statuses = [row["status"] for row in result["trials"]]
    assert statuses == ["finished", "stopped", "failed"]
    assert "loss" in result["trials"][2]["error"]
    assert result["best"] == result["trials"][0]
    assert result["best"]["settings"] == {"optimizer.learning_rate": 1e-3}
    own = json.loads(baseline)[bert_folder]
    expected = {"finished": 1, "stopped": 1, "failed": 1, "search": "grid", "dev": "built-in pairs"}
    expected |= {"dev_spearman": result["best"]["dev_spearman"], "baseline": own["reading"]}
    expected |= {"baseline_spearman": own["scores"]["built-in pairs"]}
    assert {key: result[key] for key in expected} == expected
    recorded = read_json(output / "settings.json")["trials"].values()
    assert {settings["dev"] for settings in recorded} == {"built-in pairs"}
    gap = abs(result["dev_spearman"] - result["baseline_spearman"])
    ending = captured.out.split("\n\n")[-1].splitlines()
    assert "he best trial scores" in ending[0]
    assert f" {gap:.2f} " in ending[0]
    assert ending[-1].endswith(f" sweep/trials/{result['best']['name']}/model")
    for name in ("0000", "0001"):
        trial = read_json(output / "trials" / name / "result.json")
        assert trial["baseline_spearman"] == result["baseline_spearman"], "handed on"
    # Work done twice: of the trial that was killed, at most what lies between two checkpoints.
    assert done_steps(own_store, result["trials"][0]) == dict.fromkeys(range(1, STEPS + 1), 1)
    again = done_steps(own_store, result["trials"][1])
    assert max(again.values()) <= 2
    assert sum(again.values()) - len(again) <= EVERY
    _check_runs(own_store, result, parent)
    assert not (output / "tune").exists()
    page = (output / "report.html").read_text()
    line = f"untouched: {own['reading']} {result['baseline_spearman']:.2f}"
    texts = ("Sweep rates", "<svg", "the untouched encoder, which scores")
    for text in (*texts, f"<td>{line}</td>", f"{line}</li>"):
        assert text in page
    assert "0000" in captured.out
    assert sorted(p.name for p in output.iterdir()) == [
        *("baseline.json", "mlflow_run_id", "ray.log", "report.html", "result.json"),
        *("settings.json", "trials"),
    ]
    assert "NonFiniteLossError: the loss at step 2" in (output / "ray.log").read_text()


def _check_runs(store, result, parent):
    """One run of the sweep, one of each trial below it, with its name, seed, settings, scores."""
    experiment = store.get_experiment_by_name("cotbert").experiment_id
    runs = {run.info.run_id: run for run in store.search_runs([experiment])}
    assert result["mlflow_parent_run_id"] == parent
    children = {row["mlflow_run_id"]: row for row in result["trials"]}
    assert set(runs) == {parent, *children}
    for run in runs.values():
        logged = store.get_metric_history(run.info.run_id, "baseline_spearman")
        assert [(m.step, m.value) for m in logged] == [(0, result["baseline_spearman"])]
        assert run.data.tags["baseline"] == result["baseline"]
        assert run.data.params["dev"] == "built-in pairs"
    info, data = runs[parent].info, runs[parent].data
    assert (info.run_name, info.status) == ("tune rates / sweep", "FINISHED")
    assert data.metrics["dev_spearman"] == result["dev_spearman"]
    assert data.params["search"] == "grid"
    assert data.tags["best.optimizer.learning_rate"] == "0.001"
    for run_id, row in children.items():
        info, data, failed = runs[run_id].info, runs[run_id].data, row["status"] == "failed"
        rate = row["settings"]["optimizer.learning_rate"]
        assert data.tags.items() >= {("mlflow.parentRunId", parent), ("trial", row["name"])}
        assert info.status == ("FAILED" if failed else "FINISHED")
        assert ("loss" in data.tags.get("error", "")) is failed
        assert info.run_name == f"{row['name']} learning_rate={rate:.4g} seed=0"
        assert (float(data.params["optimizer.learning_rate"]), data.params["seed"]) == (rate, "0")
        assert len(data.tags["commit"]) > 4
        seen = store.get_metric_history(run_id, "dev_spearman")
        assert failed or max(m.value for m in seen if m.step) == row["dev_spearman"]


def small(encoder):
    return settings_for("quickstart", None, [*SETTINGS, f"encoder={encoder}"], {})


def data(settings, corpus):
    """The corpus and the dev sets of a sweep."""
    return Corpus.open(corpus), graded_sets(settings, None, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": {"grid_search": [8, 4096]}}, "batch_size is 4096 and the corpus"),
        ({"method.temperature": {"grid_search": [0.05, -1.0]}}, "method.temperature=-1.0, seed=0"),
        ({"method.nothing": {"grid_search": [1]}}, "setting 'method.nothing' is unknown"),
        ({"eval_every": {"grid_search": [2, 3]}}, "asha is 4 steps and .* every 3"),
        ({"max_steps": {"grid_search": [2, 4]}}, "asha is 4 steps and the longest trial has 4"),
    ],
)
def test_what_a_trial_would_stumble_over_is_refused_before_one_starts(
    rates_corpus, bert_folder, tmp_path, settings, message
):
    space = Space("mine", "Mine.", "quickstart", settings)
    options = TuneOptions(space, "quickstart", stopping=Stopping(4))
    base = small(bert_folder)
    with pytest.raises(UserError, match=message):
        tune(options, base, *data(base, rates_corpus), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "every"), [((), 10), (("--asha", "3"), 3), (("--asha", "4", "--set=eval_every=2"), 2)]
)
def test_dev_checks_are_made_where_trials_may_be_stopped(
    rates_corpus, bert_folder, rates, tmp_path, monkeypatch, more, every
):
    """Unless `eval_every` is set; 10 is that of the recipe."""

    def checks(options, base, *_, **__):
        assert base.eval_every == every
        raise UserError("enough")

    monkeypatch.setattr("pipelines.tuning.tune.tune", checks)
    place = ("--corpus", str(rates_corpus), "--output", str(tmp_path / "out"))
    assert main(["tune", str(rates), *place, "--encoder", bert_folder, *more]) == 2


def test_the_run_names_what_all_trials_share(rates_corpus, bert_folder, rates, tmp_path):
    from pipelines.tuning import tune as job
    from pipelines.tuning.trial_plan import sampled_plan

    base = small(bert_folder)
    options = TuneOptions(open_space(str(rates)), "quickstart")
    plan = sampled_plan(options.space, base, None, (0,), 0)
    given = (*data(base, rates_corpus), tmp_path / "out", job.MODEL_ALONE)
    shared = job._params(job._Job(options, plan, *given))
    wanted = {"encoder": base.encoder, "batch_size": base.batch_size, "dev": "built-in pairs"}
    assert shared.items() >= wanted.items()
    assert not {"optimizer.learning_rate", "seed"} & shared.keys(), "these differ between trials"


def test_ctrl_c_ends_the_runs_that_were_under_way(
    own_store, rates_corpus, bert_folder, rates, tmp_path, monkeypatch
):
    from pipelines.tuning import run_trials
    from pipelines.tuning import tune as job

    def interrupted(sweep, plan, *_):
        trials = list(plan.trials.values())
        for trial in trials[:2]:
            folder = sweep.folder / trial.name
            folder.mkdir()
            experiment = own_store.get_experiment_by_name("cotbert").experiment_id
            run = own_store.create_run(experiment, tags={"trial": trial.name})
            (folder / "mlflow_run_id").write_text(run.info.run_id)
        write_json(sweep.folder / trials[0].name / "result.json", {})
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(run_trials, "_fit", interrupted)
    base = small(bert_folder)
    options = TuneOptions(open_space(str(rates)), "quickstart")
    with pytest.raises(KeyboardInterrupt, match="give the same command again to continue"):
        tune(options, base, *data(base, rates_corpus), tmp_path / "out")
    experiment = own_store.get_experiment_by_name("cotbert").experiment_id
    runs = own_store.search_runs([experiment])
    statuses = {r.data.tags.get("trial", r.data.tags.get("job")): r.info.status for r in runs}
    assert statuses == {"tune": "KILLED", "0000": "RUNNING", "0001": "KILLED"}


@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_the_run_of_a_sweep_without_a_finished_trial_fails(
    own_store, rates_corpus, bert_folder, rates, tmp_path, monkeypatch, search
):
    from pipelines.tuning import tune as job

    def failed(sweep, plan, *_):
        for name in plan.trials:
            (sweep.folder / name).mkdir()
            write_json(sweep.folder / name / "failed.json", {"error": "loss is nan"})

    monkeypatch.setattr(job, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(job, "run_trials", failed)
    base = small(bert_folder)
    options = TuneOptions(open_space(str(rates)), "quickstart", search=search)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "settings.json.partial").touch()  # of a kill or a full disk
    with pytest.raises(RuntimeError, match="no trial finished"):
        tune(options, base, *data(base, rates_corpus), tmp_path / "out")
    experiment = own_store.get_experiment_by_name("cotbert").experiment_id
    (run,) = own_store.search_runs([experiment])
    assert (run.info.status, "no trial finished" in run.data.tags["error"]) == ("FAILED", True)
    assert " 3 trials of recipe quickstart" in run.data.tags["mlflow.note.content"]
    assert read_json(tmp_path / "out" / "result.json")["mlflow_parent_run_id"] == run.info.run_id
    assert "result.json" in {file.path for file in own_store.list_artifacts(run.info.run_id)}
