"""What MLflow shows of a run beside its numbers: its corpus, its model, what it did."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from pipelines.recording.artifacts import RefusedError
from pipelines.recording.records import send
from pipelines.recording.tracking import DESCRIPTION_TAG, tracked_run


class Corpus(SimpleNamespace):
    def __len__(self):
        return 1234


def test_a_run_has_its_corpus_its_model_once_and_a_description(own_store, tmp_path):
    """Both are recorded twice, as by a resumed job."""
    corpus = Corpus(path=tmp_path / "corpora" / "mine", digest="0123456789abcdef")
    folder = tmp_path / "runs" / "a.b" / "model"
    about = "Trains on postgresql://me:secret@host/texts."
    with tracked_run("train", {}, about=about, home=tmp_path) as run:
        for _ in range(2):
            run.dataset(corpus)
            run.model(folder, {"method": "simcse", "long": "x" * 999}, {"dev_spearman": 71.5}, 40)
    found = own_store.get_run(run.id)

    (used,) = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("mine", "0123456789abcdef")
    assert json.loads(used.dataset.profile) == {"num_rows": 1234}
    assert json.loads(used.dataset.source) == {"uri": str(corpus.path)}
    assert {tag.key: tag.value for tag in used.tags} == {"mlflow.data.context": "training"}

    (output,) = found.outputs.model_outputs
    (model,) = own_store.search_logged_models([found.info.experiment_id])
    assert model.model_id == output.model_id
    assert (model.name, model.source_run_id, str(model.status)) == ("a-b", run.id, "READY")
    assert model.tags["model_folder"] == str(folder)
    assert model.params == {"method": "simcse", "long": "x" * 250}
    (metric,) = model.metrics
    assert (metric.key, metric.value, metric.step) == ("dev_spearman", 71.5, 40)

    shown = found.data.tags[DESCRIPTION_TAG]
    assert shown.startswith("Trains on postgresql://")
    assert "secret" not in shown


def test_a_models_score_may_be_undefined_and_of_any_dev_set(own_store, tmp_path):
    with tracked_run("train", {}, home=tmp_path) as run:
        run.model(tmp_path / "model", {}, {"dev_spearman": math.nan, "dev_spearman.a,b": 1.0}, 40)
    (model,) = own_store.search_logged_models([own_store.get_run(run.id).info.experiment_id])
    assert {metric.key: metric.value for metric in model.metrics} == {"dev_spearman.a_b": 1.0}


def test_a_model_whose_creation_had_no_answer_is_completed(own_store):
    values = {"params": {}, "metrics": {"dev_spearman": 71.5}, "step": 40, "time": 1}
    record = {"kind": "model", "name": "m", "folder": "f", **values}
    with tracked_run("train", {}) as run:
        experiment = own_store.get_run(run.id).info.experiment_id
        made = own_store.create_logged_model(experiment, name="m", source_run_id=run.id)
        for _ in range(2):
            send(own_store, run.id, record)
    (model,) = own_store.search_logged_models([experiment])
    assert model.model_id == made.model_id
    assert [m.value for m in model.metrics] == [71.5]
    (output,) = own_store.get_run(run.id).outputs.model_outputs
    assert (output.model_id, output.step) == (made.model_id, 40)


def test_a_server_without_logged_models_refuses_and_the_queue_goes_on():
    def answer(*_, **__):
        error = MlflowException("no such path")
        error.error_code = "ENDPOINT_NOT_FOUND"
        raise error

    run = SimpleNamespace(info=SimpleNamespace(experiment_id="1"), outputs=None)
    old = SimpleNamespace(get_run=lambda _: run, search_logged_models=answer)
    record = {"kind": "model", "name": "m", "folder": "f", "params": {}, "metrics": {}, "step": 0}
    with pytest.raises(RefusedError, match="no such path"):
        send(old, "r", record)
