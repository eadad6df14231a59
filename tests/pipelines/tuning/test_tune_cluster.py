"""A sweep on a cluster of two nodes, its MLflow server killed on the way: nothing is lost."""

from __future__ import annotations

import time

import mlflow
import numpy as np
import pytest
from test_tune import begun, words

from cotbert_core import SentenceEncoder
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.runtime import lost_nodes
from pipelines.runtime.ray_session import ray_session
from pipelines.training.metrics_log import read_rows

TEXTS = ["A man is singing on the stage.", "Two dogs"]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each: two raylets on this machine."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
    made.shutdown()


@pytest.fixture
def good_rates(rates):
    """The space without the learning rate that blows up."""
    rates.write_text(rates.read_text().replace("1.0e+30", "1.0e-4"))
    return rates


@pytest.mark.ray_local
def test_a_server_that_dies_costs_no_trial_and_no_record(
    cluster, server, server_client, rates_corpus, good_rates, bert_folder, tmp_path, capfd
):
    output = tmp_path / "sweep"
    more = ("--trials", "2", "--register", "tiny rates", "--log-model")
    command = words(good_rates, rates_corpus, output, bert_folder, *more)
    with begun(command, output, "0000") as driver:
        server.kill()
        message = driver.communicate(timeout=560)[1]
    assert driver.returncode == 0, message
    assert f"cotbert track-sync {output}` sends them" in message
    result = read_json(output / "result.json")
    assert [row["status"] for row in result["trials"]] == ["finished"] * 2
    assert main(["track-sync", str(output)]) == 1  # the server is still away

    server.start()
    assert main(["track-sync", str(output)]) == 0
    capfd.readouterr()
    parent = server_client.get_run(read_json(output / "result.json")["mlflow_parent_run_id"])
    children = server_client.search_runs(
        [parent.info.experiment_id], f"tags.mlflow.parentRunId = '{parent.info.run_id}'"
    )
    assert sorted(run.data.tags["trial"] for run in children) == ["0000", "0001"]
    assert {run.info.status for run in (parent, *children)} == {"FINISHED"}
    names = {a.path for a in server_client.list_artifacts(parent.info.run_id)}
    assert {"report.html", "result.json"} <= names
    for run in children:
        folder = output / "trials" / run.data.tags["trial"]
        rows = read_rows(folder / "metrics.jsonl")
        for key in ("loss", "dev_spearman"):
            kept = {m.step: m.value for m in server_client.get_metric_history(run.info.run_id, key)}
            assert kept == {step: row[key] for step, row in rows.items() if key in row}
        settings = read_json(folder / "settings.json")["settings"]
        del settings["cpus_per_worker"]  # which may change when a run continues
        assert run.data.params.items() >= {k: str(v) for k, v in settings.items()}.items()
        assert "model" in {a.path for a in server_client.list_artifacts(run.info.run_id)}

    assert result["registered"] is None
    assert main(words(good_rates, rates_corpus, output, bert_folder, *more)) == 0
    assert read_json(output / "result.json")["registered"] == "models:/tiny rates/1"
    version = server_client.get_model_version_by_alias("tiny rates", "best")
    assert version.run_id in {run.info.run_id for run in children}
    assert main(words(good_rates, rates_corpus, output, bert_folder, *more)) == 2, "it is finished"


@pytest.mark.ray_local
def test_the_best_model_of_a_sweep_is_found_by_its_alias(
    cluster, server, server_client, rates_corpus, good_rates, bert_folder, tmp_path, capfd
):
    output = tmp_path / "sweep"
    more = ("--trials", "1", "--register", "rates")
    assert main(words(good_rates, rates_corpus, output, bert_folder, *more)) == 0
    result = read_json(output / "result.json")
    version = server_client.get_model_version_by_alias("rates", "best")
    assert result["registered"] == f"models:/rates/{version.version}"
    assert version.run_id == result["best"]["mlflow_run_id"]
    assert version.tags["dev"] == result["dev"] == "built-in pairs"
    vectors = mlflow.pyfunc.load_model("models:/rates@best").predict(TEXTS)
    model = output / "trials" / result["best"]["name"] / "model"
    expected = SentenceEncoder.from_pretrained(str(model)).encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert "rates@best is now version" in capfd.readouterr().err


@pytest.mark.ray_local
def test_a_lost_node_is_reported_with_rays_cause(cluster, monkeypatch, capfd):
    """Ray itself notices it after 16 s, and says nothing."""
    monkeypatch.setattr(lost_nodes, "LOOK_SECONDS", 0.2)
    lost, said, waited = cluster.add_node(num_cpus=1), "", time.monotonic() + 90
    with ray_session():
        time.sleep(1)  # all nodes are seen alive
        cluster.remove_node(lost, allow_graceful=False)
        while "warning: " not in said and time.monotonic() < waited:
            time.sleep(0.2)
            said += capfd.readouterr().err
    assert "warning: the cluster lost its node " in said
    assert "health check failed" in said
    assert "2 nodes are left" in said
