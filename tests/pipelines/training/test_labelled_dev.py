"""Labelled texts as dev set: their score chooses, graded pairs are scored beside them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tiny_corpus import write_corpus
from trainings import SENTENCES, result_of, training

from cotbert_core.errors import UserError
from cotbert_core.evaluation.labelled import Labelled, same_label
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.settings import TrainSettings
from pipelines.cli import main
from pipelines.commands.training import TrainingOptions, comparison
from pipelines.recording.dev_metric import SAME_LABEL, metric_in
from pipelines.training import run_result, training_metadata
from pipelines.training.baseline import score_untouched
from pipelines.training.dev_sets import (
    BUILT_IN_PAIRS,
    dev_digest,
    dev_metric,
    dev_name,
    graded_sets,
    keyword_score,
    score_dev,
    with_labelled,
)
from pipelines.training.metrics_log import read_rows

OWN = TrainSettings(dev="own")
TEXTS = [f"{word} {number}" for number in range(4) for word in ("oil", "dogs", "ice")]
LABELS = np.array([0, 1, 2] * 4)


@pytest.fixture
def pairs():
    return graded_sets(OWN, None, BUILT_IN_PAIRS)


@pytest.fixture
def dev(pairs):
    return with_labelled(pairs, Labelled(TEXTS, LABELS))


def letters(texts):
    """Vectors by the first letter, so that each text is nearest to one of its word."""
    vectors = np.random.default_rng(0).normal(size=(128, 8))
    return np.array([vectors[ord(text[0]) % 128] + 1e-3 * len(text) for text in texts])


def test_they_choose_and_graded_pairs_do_not(dev, pairs):
    encode = EncodeFunctions(letters)
    scores, (mean,) = score_dev(encode, dev), score_dev(encode, pairs).values()
    assert scores == {"dev_same_label": 100.0, "dev_spearman.pairs.tsv": mean}
    assert dev_metric(dev) is metric_in(scores) is SAME_LABEL
    assert (dev_name(dev), keyword_score(dev)) == ("labelled texts", None)
    other = with_labelled(pairs, Labelled(TEXTS, np.sort(LABELS)))
    assert len({dev_digest(sets) for sets in (dev, other, pairs)}) == 3
    assert score_dev(encode, other)["dev_same_label"] < 100


def test_the_baseline_is_chosen_by_them(dev, bert_folder):
    found = score_untouched(bert_folder, dev, "fp32")
    expected = 100 * same_label(found.open(bert_folder, "fp32"), Labelled(TEXTS, LABELS)).mean()
    assert found.metric is SAME_LABEL
    assert found.score == pytest.approx(expected)
    assert found.entries == {
        "baseline": found.reading,
        "baseline_same_label": found.score,
        "baseline_spearman.pairs.tsv": found.scores["pairs.tsv"],
    }


def test_a_result_and_a_card_show_them_and_the_graded_pairs(dev):
    rows = {
        0: {"dev_same_label": 40.0, "dev_spearman.pairs.tsv": 73.0},
        15: {"dev_same_label": 50.0, "dev_spearman.pairs.tsv": 71.0},
    }
    log = SimpleNamespace(rows=rows)
    training = SimpleNamespace(dev=dev)
    assert run_result._beside(training, log, 15) == {
        "dev_spearman.pairs.tsv": 71.0,
        "dev_spearman_before.pairs.tsv": 73.0,
    }
    chosen, beside = training_metadata._dev_scores(dev, log, 15)
    name = "labelled texts, dev, % of the texts whose nearest one has the same label (the step"
    assert chosen.name.startswith(name)
    assert (chosen.before, chosen.after) == (40.0, 50.0)
    assert (beside.before, beside.after) == (73.0, 71.0)


@pytest.fixture
def labels(tmp_path):
    file = tmp_path / "labels.csv"
    rows = (f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
    file.write_text("text,kind\n" + "".join(rows))
    return str(file)


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        ({"labelled": None}, TrainSettings(), "label_column is 'kind' without labelled texts"),
        ({"labelled": "none.csv"}, TrainSettings(), "'none.csv' does not exist"),
        ({}, OWN, "only one of both can choose the step: leave one of them out"),
    ],
)
def test_labels_that_cannot_choose_are_refused(labels, tmp_path, given, settings, message):
    options = {"corpus": labels, "labelled": labels, "label_column": "kind"} | given
    with pytest.raises(UserError, match=message):
        TrainingOptions(**options).open_data(settings, tmp_path / "out")


def test_labels_that_chose_prove_nothing(labels):
    options = TrainingOptions(corpus="text.txt", labelled=labels)
    assert comparison(options, TrainSettings(), "model")[:2] == ["embed", "model"]


@pytest.mark.ray_local
def test_a_training_chooses_by_them(ray_here, own_store, labels, bert_folder, tmp_path, capsys):
    corpus = write_corpus(tmp_path / "corpus", bert_folder, SENTENCES[:48], max_length=12)
    settings = ("batch_size=8", "precision=fp32", "max_length=12", "workers=1", "max_steps=2")
    settings += ("eval_every=1", "optimizer.learning_rate=1e-3")
    flags = ("--labelled", labels, "--label-column", "kind")
    assert main(training(bert_folder, corpus, tmp_path / "run", *settings, flags=flags)) == 0
    result, rows = result_of(tmp_path / "run"), read_rows(tmp_path / "run" / "metrics.jsonl")
    assert result["dev"] == "labelled texts"
    assert result["dev_same_label"] == max(rows[step]["dev_same_label"] for step in (1, 2))
    (pairs,) = (name for name in rows[2] if name.startswith("dev_spearman"))
    assert result[pairs] == rows[result["best_step"]][pairs]
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["best_dev_same_label"] == result["dev_same_label"]
    assert metrics["baseline_same_label"] == result["baseline_same_label"]
    assert (
        f"scores {result['dev_same_label']:.2f} % on dev (labelled texts)"
        in capsys.readouterr().out
    )
    assert "dev texts by labels in %" in (tmp_path / "run/report.html").read_text()
