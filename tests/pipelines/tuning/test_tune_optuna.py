"""A sweep that Optuna leads, as a user runs it: killed on the way and continued."""

from __future__ import annotations

import pytest
from test_tune import EVERY, begun, done_steps, words

from cotbert_core.files import read_json
from pipelines.cli import main

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


def sampled(output):
    """What Optuna's study holds."""
    from optuna import load_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(output / "trials" / "optuna.log")))
    return load_study(study_name="sweep", storage=storage).trials


@pytest.mark.ray_local
def test_a_killed_sweep_of_optunas_continues_with_what_was_sampled(
    own_store, rates_corpus, bert_folder, tmp_path, capfd
):
    output, space = tmp_path / "sweep", tmp_path / "rates.yaml"
    space.write_text(SPACE)
    command = words(space, rates_corpus, output, bert_folder, "--search", "optuna", "--trials", "3")
    with begun(command, output, "0001") as driver:
        driver.kill()
    before, parent = sampled(output), (output / "mlflow_run_id").read_text()
    assert len(before) == 2
    first = (output / "trials" / "0000" / "result.json").stat()

    assert main(command) == 0
    assert f"continuing the sweep in {output}" in capfd.readouterr().err
    assert (output / "trials" / "0000" / "result.json").stat() == first
    result, after = read_json(output / "result.json"), sampled(output)
    assert [one.params for one in after[:2]] == [one.params for one in before]
    assert [row["name"] for row in result["trials"]] == ["0000", "0001", "0002"]
    scores = [row["dev_spearman"] for row in result["trials"]]
    assert [one.value for one in after] == [*scores[:2], None], "the last one leads to no other"
    assert {row["status"] for row in result["trials"]} == {"finished"}
    assert result["search"] == "optuna"
    for row, one in zip(result["trials"], after, strict=True):
        assert row["settings"][RATE] == one.params[RATE]
        ran = read_json(output / "trials" / row["name"] / "settings.json")["settings"]
        assert ran[RATE] == row["settings"][RATE]
        assert ran["method.temperature"] == {"warm": 0.1, "cold": 0.03}[row["settings"]["variant"]]
    again = done_steps(own_store, result["trials"][1])
    assert sum(again.values()) - len(again) <= EVERY
    experiment = own_store.get_experiment_by_name("cotbert").experiment_id
    runs = {run.info.run_id: run for run in own_store.search_runs([experiment])}
    assert set(runs) == {parent, *(row["mlflow_run_id"] for row in result["trials"])}
    assert runs[parent].data.params["search"] == "optuna"
    assert read_json(output / "settings.json")["axes"] == {RATE: "0.0001 to 0.01, log-uniform"}
