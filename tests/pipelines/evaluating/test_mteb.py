"""Tasks of MTEB: names, data that is not there, and tasks of made and of real data."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import util

import numpy as np
import pytest

from cotbert_core.encoder.locations import MINILM
from cotbert_core.errors import UserError
from cotbert_core.evaluation.mteb_model import MtebModel
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.evaluation.sts import STS_TASKS
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluating.evaluation_data import only_mteb
from pipelines.evaluating.mteb_tasks import DENOSENT, GROUPS, MtebTasks, open_tasks, split_tasks
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.scoring import Scored


def test_names_after_the_prefix_are_mtebs():
    for asked, expected in (
        ("sts,TREC", ("sts,TREC", ())),
        ("mteb", ("", DENOSENT)),
        ("mteb,sts", ("sts", DENOSENT)),
        ("sts,mteb:STS12,NFCorpus", ("sts", ("STS12", "NFCorpus"))),
        ("sts, mteb", ("sts", DENOSENT)),
        ("mteb: reranking, QuoraRetrieval", ("", (*GROUPS["reranking"], "QuoraRetrieval"))),
    ):
        assert split_tasks(asked) == expected
    assert [len(names) for names in GROUPS.values()] == [10, 4, 1]
    assert len(set(DENOSENT)) == 15


def test_tasks_of_mteb_alone_have_no_intervals(tmp_path):
    alone = EvaluateOptions(tasks="mteb:SciDocsRR")
    others = ({"tasks": "mteb,sts"}, {"tasks": None}, {"pairs": tmp_path}, {"corpus": tmp_path})
    assert only_mteb(alone)
    assert not any(only_mteb(replace(alone, **other)) for other in others)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"of MTEB needs mteb: install with pip install 'mteb<"):
        open_tasks(["SciDocsRR"], allow_missing=True)


def test_batches_are_encoded_at_once_and_in_order():
    calls = []
    model = MtebModel(
        EncodeFunctions(lambda texts: calls.append(texts) or np.ones((len(texts), 2)))
    )
    batches = [{"text": ["a", "b"]}, {"text": ["c"], "title": ["t"]}]
    assert model.encode(batches, task_metadata=None, prompt_type=None).shape == (3, 2)
    assert calls == [["a", "b", "c"]]
    model = MtebModel(
        EncodeFunctions(lambda texts: np.ones((len(texts), 2)), lambda texts: np.zeros((3, 2)))
    )
    assert not model.encode(batches, prompt_type="query").any()
    assert model.encode(batches, prompt_type="document").all()


THEMES = {0: "two dogs run across the field", 1: "the price of oil rose on monday"}


@pytest.fixture
def weather(monkeypatch):
    """A task of two classes under MTEB's registry, in this process's memory."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification
    from mteb.abstasks.task_metadata import TaskMetadata

    def part(count):
        draw = np.random.default_rng(count)
        labels = [n % 2 for n in range(count)]
        words = [THEMES[label].split() for label in labels]
        texts = [" ".join(draw.permutation(w)[:4]) for w in words]
        return Dataset.from_dict({"text": texts, "label": labels})

    class Weather(AbsTaskClassification):
        metadata = TaskMetadata(
            name="Weather",
            description="made",
            dataset={"path": "nobody/weather", "revision": "0"},
            type="Classification",
            eval_splits=["validation", "test"],
            eval_langs=["eng-Latn"],
            main_score="accuracy",
        )

        def load_data(self, **_):
            self.dataset = DatasetDict(train=part(60), test=part(40))
            self.data_loaded = True

    registry = sys.modules["mteb.get_tasks"]._TASKS_REGISTRY
    monkeypatch.setitem(registry, "Weather", Weather)
    return Weather


@pytest.mark.real
def test_a_task_runs_through_mteb(own_store, tmp_path, bert_folder, weather, capsys):
    out = tmp_path / "scores.json"
    command = ["evaluate", bert_folder, "--tasks", "mteb:Weather", "--precision", "fp32"]
    assert main([*command, "--output", str(out)]) == 0
    shown = capsys.readouterr().out
    result = json.loads(out.read_text())
    entry = result["mteb/Weather"]
    assert entry["metric"] == "accuracy"
    assert 70 < entry["main_score"] <= 100
    assert f"{entry['main_score']:.2f}" in shown
    assert not [key for key in result if key.startswith("pairs")]
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["mteb/Weather.main_score"] == pytest.approx(entry["main_score"])
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    assert entry["main_score"] == pytest.approx(_by_mteb_alone(encoder, weather), abs=1e-6)


def _by_mteb_alone(encoder, task_class):
    """The same without this command."""
    import mteb

    task = task_class()
    task.filter_eval_splits(["test"])
    model = MtebModel(encoder.functions("fp32"))
    found = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False)
    return 100 * found.task_results[0].get_score()


@pytest.mark.real
def test_data_that_cannot_be_had_is_refused_before_anything_is_scored(
    own_store, bert_folder, weather, capsys
):
    def offline(self, **_):
        raise ConnectionError("Couldn't reach 'nobody/weather' on the Hub")

    weather.load_data, whole = offline, weather.load_data
    command = ["evaluate", bert_folder, "--tasks", "mteb:Weather"]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "data of MTEB's Weather cannot be loaded (Couldn't reach 'nobody/weather' on" in line
    assert "set HF_HOME" in line
    assert main([*command, "--allow-missing"]) == 2, "it is the only one"
    assert "--allow-missing" not in capsys.readouterr().err, "it is given already"
    assert own_store.search_runs(["0", "1"]) == []
    weather.load_data = whole
    with pytest.raises(UserError, match=r"MTEB has no task 'Wether'.*choose one of classification"):
        open_tasks(["Wether"], allow_missing=True)


@pytest.mark.real
@pytest.mark.parametrize("kind", ["MockRetrievalTask", "MockRerankingTask"])
def test_reranking_and_retrieval_have_what_denosent_reports(bert_folder, kind):
    from mteb.mocks import mock_tasks as mocks

    scored, task = Scored(), getattr(mocks, kind)()
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    MtebTasks((task,)).score_into(scored, encoder.functions())
    (entry,) = scored.entries.values()
    assert 0 <= entry["map_at_1"] <= entry["mrr_at_1"] <= 100
    assert 0 < entry["main_score"] <= 100


def test_real_pairs_score_through_mteb_as_they_do_here(unrecorded, tmp_path, shared, monkeypatch):
    """STS-B's test set, of which MTEB has the same pairs as SentEval, all-MiniLM-L6-v2."""
    import mteb
    from datasets import Dataset, DatasetDict

    home = shared / "data" / "senteval"
    pairs = STS_TASKS["STS-B"][1](home)["all"]
    columns = {"sentence1": pairs.left, "sentence2": pairs.right, "score": pairs.gold.tolist()}
    data = Dataset.from_dict({name: list(values) for name, values in columns.items()})

    def load_data(self, **_):
        self.dataset, self.data_loaded = DatasetDict(test=data), True

    monkeypatch.setattr(type(mteb.get_task("STSBenchmark")), "load_data", load_data)
    out = tmp_path / "scores.json"
    tasks = ["--senteval", str(home), "--tasks", "STSBenchmark,mteb:STSBenchmark"]
    assert main(["evaluate", MINILM, *tasks, "--output", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["mteb/STSBenchmark"]["main_score"] > 80
    expected = pytest.approx(result["STS-B"]["spearman"], abs=0.02)
    assert result["mteb/STSBenchmark"]["main_score"] == expected
