"""Facts of a training for its model's card."""

from __future__ import annotations

import pytest

from benchmarks.method_table import BARE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_files import load_pooling_config
from cotbert_core.methods import build_method
from cotbert_core.saving.training_metadata import TrainingMetadata
from pipelines.storage.corpus import Corpus
from pipelines.training import run_result
from pipelines.training.baseline import Baseline
from pipelines.training.metrics_log import MetricsLog
from pipelines.training.training_metadata import published, training_metadata
from pipelines.training.training_run import TrainingRun


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/home/someone/secret/wiki.txt", "wiki.txt"),
        ("wiki.txt", "wiki.txt"),
        ("/home/someone/2026T10:00/wiki.txt", "wiki.txt"),
        ("file:///home/someone/wiki.txt", "wiki.txt"),
        ("docstrings:numpy,torch", "docstrings:numpy,torch"),
        ("hf:NAME:CONFIG", "hf:NAME:CONFIG"),
        ("s3://bucket/a/*.txt?region=eu&key=mine", "s3://bucket/a/*.txt"),
    ],
)
def test_an_input_is_shown_without_the_machine_s_folders(name, shown):
    assert published(name) == shown


def test_facts_of_a_run(tmp_path):
    scores = {0: (20.0, 10.0, 30.0), 2: (50.0, 45.0, 55.0), 4: (40.0, 40.0, 40.0)}
    names = ("dev_spearman", "dev_spearman.a", "dev_spearman.b")
    rows = {step: dict(zip(names, three, strict=True)) for step, three in scores.items()}
    (tmp_path / "manifest.json").write_text("{}")
    source = {"inputs": ["/a/b.txt", "hf:NAME"]}
    corpus = Corpus(tmp_path, {"rows": 1234, "source": source, "columns": ["augmented"]})
    untouched = Baseline("its own mean pooling", None, {"a": 60.0, "b": 61.0})
    facts = training_metadata(corpus, {"a": None, "b": None}, MetricsLog(rows, 4), 2, untouched)
    assert [(score.name, score.before, score.after) for score in facts.scores] == [
        ("a + b (the step was chosen by it)", 20.0, 50.0),
        ("a, dev", 10.0, 45.0),
        ("b, dev", 30.0, 55.0),
        ("a + b, the untouched encoder by its own mean pooling", 60.5, None),
    ]
    assert facts.data["source"] == "`b.txt`, `hf:NAME`"
    assert (facts.data["sentences"], facts.data["companions"]) == ("1,234", "augmented")
    assert corpus.digest in facts.data["digest of the corpus"]
    assert facts.made["steps"].startswith("2 of 4")
    assert set(facts.made) == {"date", "code", "versions", "steps"}
    packed = Corpus(tmp_path, {**corpus.manifest, "rows": 123, "packed": {"sentences": 4567}})
    facts = training_metadata(packed, {"a": None}, MetricsLog(rows, 4), 2, untouched)
    assert facts.data["sentences"] == "4,567"


def test_the_model_of_a_run_names_a_teacher_without_this_machine_s_paths(
    tiny_settings, bert_folder, tmp_path
):
    how = {"method.name": "rankcse", **BARE, "method.teacher": bert_folder}
    training = TrainingRun(tiny_settings(bert_folder, how), None, {"own.tsv": None}, tmp_path)
    method = build_method(load_backbone(bert_folder), training.settings)
    run_result._save_model(training, method.state_dict(), TrainingMetadata())
    settings = load_pooling_config(str(tmp_path / "model"))["settings"]
    assert settings == method.pooling.settings | {"dev": "own.tsv"}
    assert settings["method.teacher"].startswith("a folder named ")
    assert bert_folder not in (tmp_path / "model" / "README.md").read_text()
