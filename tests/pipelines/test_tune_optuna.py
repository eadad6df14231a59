"""A sweep that Optuna leads, as a user runs it: killed on the way and continued."""

from __future__ import annotations

import pytest
from test_tune import EVERY, begun, done_steps, words

from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.tuning.optuna_plan import observed
from pipelines.tuning.optuna_sampler import Suggestions
from tune_spaces import open_space

pytest.importorskip("optuna", reason="needs the extra 'optuna'")

RATE = "optimizer.learning_rate"
SPACE = """
name: rates
purpose: Learning rates and variants.
recipe: quickstart
settings:
  optimizer.learning_rate: {loguniform: [1.0e-4, 1.0e-2]}
variants: {warm: {method.temperature: 0.1}, cold: {method.temperature: 0.03}}
"""


def drawn(output):
    files = (output / "trials").glob("*.drawn.json")
    return {file.name.split(".")[0]: read_json(file) for file in files}


@pytest.mark.ray_local
def test_a_killed_sweep_of_optunas_continues_with_what_was_sampled(
    own_store, rates_corpus, bert_folder, tmp_path, capfd
):
    output, space = tmp_path / "sweep", tmp_path / "rates.yaml"
    space.write_text(SPACE)
    command = words(space, rates_corpus, output, bert_folder, "--search", "optuna", "--trials", "3")
    with begun(command, output, "0001") as driver:
        driver.kill()
    before, parent = drawn(output), (output / "mlflow_run_id").read_text()
    assert list(before) in (["0000", "0001"], ["0001", "0000"])
    first = (output / "trials" / "0000" / "result.json").stat()

    assert main(command) == 0
    assert f"continuing the sweep in {output}" in capfd.readouterr().err
    assert (output / "trials" / "0000" / "result.json").stat() == first
    result, after = read_json(output / "result.json"), drawn(output)
    assert {name: after[name] for name in before} == before
    assert [row["name"] for row in result["trials"]] == ["0000", "0001", "0002"] == sorted(after)
    assert {row["status"] for row in result["trials"]} == {"finished"}
    assert result["search"] == "optuna"
    for row in result["trials"]:
        assert row["settings"] == after[row["name"]]["sample"]
        ran = read_json(output / "trials" / row["name"] / "settings.json")["settings"]
        assert ran[RATE] == row["settings"][RATE]
        assert ran["method.temperature"] == {"warm": 0.1, "cold": 0.03}[row["settings"]["variant"]]
    again = done_steps(own_store, result["trials"][1])
    assert sum(again.values()) - len(again) <= EVERY
    # The third is what Optuna says of the first two, asked by itself.
    known = [observed(after[n]["drawn"], [output / "trials" / n]) for n in ("0000", "0001")]
    assert Suggestions(open_space(str(space)), 0).next(known) == after["0002"]["drawn"]
    experiment = own_store.get_experiment_by_name("cotbert").experiment_id
    runs = {run.info.run_id: run for run in own_store.search_runs([experiment])}
    assert set(runs) == {parent, *(row["mlflow_run_id"] for row in result["trials"])}
    assert runs[parent].data.params["search"] == "optuna"
    assert read_json(output / "settings.json")["axes"] == {RATE: "0.0001 to 0.01, log-uniform"}
