"""The untouched encoder's score: how it is read, what it is held against, and what is said."""

from __future__ import annotations

import json
import random
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import POOLING_CONFIG_FILE
from cotbert_core.evaluation.pairs import Pairs, score_pairs
from cotbert_core.readouts import build_features
from cotbert_core.settings import TrainSettings
from pipelines.adapting.final_model import SAVED_READOUTS
from pipelines.training import baseline as module
from pipelines.training.baseline import (
    BASELINE_FILE,
    NAMES,
    Baseline,
    baselines,
    score_untouched,
)
from pipelines.training.report import write_training_report

LEFT = ("A man is playing the guitar.", "Two dogs run", "What do you want?", "oil", "A man saw it")
RIGHT = ("A woman is singing a song", "She sells sea shells", "The room", "the price of oil", "ice")
FOUND = Baseline("first-last average", "first-last", {"built-in pairs": 73.9})
WORSE = {
    "dev_spearman": 64.4,
    "dev": "built-in pairs",
    "baseline": "its own mean pooling",
    "baseline_spearman": 73.9,
}


def pairs(gold, left=LEFT, right=RIGHT):
    return Pairs(list(left), list(right), np.array(gold, float))


DEV = {"a": pairs([1, 2, 3, 4, 5]), "b": pairs([5, 1, 2, 3, 4], RIGHT, LEFT[::-1])}


def slow(encoder, readout, dev):
    """The score of one reading, the encoder opened for it alone."""
    if readout == "first-last":
        encode = build_features(readout, load_backbone(encoder), precision="fp32")
    else:
        opened = SentenceEncoder.from_pretrained(encoder, readout=readout)
        encode = partial(opened.encode, precision="fp32")
    return {name: score_pairs(encode, own).spearman for name, own in dev.items()}


class Recorded:
    """What a run of MLflow is sent."""

    def __init__(self):
        self.sent_metrics, self.sent_tags = [], []

    def metrics(self, values, step=0):
        self.sent_metrics.append((step, dict(values)))

    def tags(self, values):
        self.sent_tags.append(dict(values))


@pytest.fixture
def own_pooling(bert_folder, tmp_path):
    """The encoder as a sentence-transformers folder that names its pooling."""

    def make(mode):
        folder = tmp_path / mode
        SentenceEncoder.from_pretrained(bert_folder, readout=mode).save_pretrained(folder)
        (folder / POOLING_CONFIG_FILE).unlink()
        return str(folder)

    return make


def test_an_encoder_without_pooling_is_read_by_the_best_of_three(bert_folder):
    readouts = {"last": "mean", "first-last": "first-last", "cls": "cls"}
    chosen = set()
    # The pairs with other grades, until each reading was the best.
    for gold in map(np.random.default_rng(0).permutation, [5] * 30):
        dev = {"a": pairs(gold), "b": pairs(gold[::-1], RIGHT, LEFT[::-1])}
        each = {key: slow(bert_folder, name, dev) for key, name in readouts.items()}
        best = max(float(np.mean(list(scores.values()))) for scores in each.values())
        found = score_untouched(bert_folder, dev, "fp32")
        assert found.spearman == pytest.approx(best, abs=1e-9)
        assert found.scores == pytest.approx(each[found.readout], abs=1e-9)
        assert found.reading == NAMES[found.readout]
        chosen.add(found.readout)
        # As `adapt` asks: of those that a model folder can name.
        saved = score_untouched(bert_folder, dev, "fp32", SAVED_READOUTS)
        scores = {key: float(np.mean(list(each[key].values()))) for key in SAVED_READOUTS}
        assert scores[saved.readout] == max(scores.values())
        if len(chosen) == 3:
            return
    pytest.fail("premise: each of the three wins somewhere")


@pytest.mark.parametrize(("mode", "other"), [("cls", "mean"), ("mean", "cls")])
def test_its_own_pooling_is_taken_even_where_another_reading_is_better(own_pooling, mode, other):
    folder = own_pooling(mode)
    for gold in map(np.random.default_rng(0).permutation, [5] * 30):
        dev = {"a": pairs(gold)}
        found = score_untouched(folder, dev, "fp32")
        assert found.scores == pytest.approx(slow(folder, None, dev), abs=1e-9)
        own = {"cls": "[CLS]", "mean": "mean"}[mode]
        assert (found.readout, found.reading) == (None, f"its own {own} pooling")
        if found.spearman < slow(folder, other, dev)["a"]:
            return
    pytest.fail("premise: the other reading is better somewhere")


def test_a_folder_trained_here_is_read_as_it_was_trained(encoder_folder, family, tmp_path):
    folder = str(tmp_path / "model")
    SentenceEncoder.from_pretrained(encoder_folder, f"{family}/anchor").save_pretrained(folder)
    found = score_untouched(folder, DEV, "fp32")
    assert found.scores == pytest.approx(slow(folder, None, DEV), abs=1e-9)
    assert found.reading == "its own [MASK] reading"


def test_a_pooling_that_cannot_be_read_here_is_reported_and_does_not_end_the_job(
    own_pooling, capsys
):
    folder = own_pooling("mean")
    config = next(Path(folder).glob("*_Pooling/config.json"))
    config.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    found = score_untouched(folder, DEV, "fp32")
    assert found.readout in NAMES
    said = "warning: neither the baseline nor the training reads the encoder in its own way: "
    assert said in capsys.readouterr().err


def test_sentences_are_cut_where_the_folder_says(own_pooling):
    folder = own_pooling("mean")
    long = {"a": pairs([1, 2, 3, 4, 5], [f"{'oil ' * 9} {text}" for text in LEFT])}
    whole = score_untouched(folder, long, "fp32")
    limits = Path(folder) / "sentence_bert_config.json"
    limits.write_text(json.dumps({"max_seq_length": 6}))
    cut = score_untouched(folder, long, "fp32")
    assert cut.scores == pytest.approx(slow(folder, None, long), abs=1e-9)
    assert cut.scores != pytest.approx(whole.scores)


def test_it_opens_as_it_was_scored(bert_folder, own_pooling):
    for encoder in (bert_folder, own_pooling("cls")):
        found = score_untouched(encoder, DEV, "fp32")
        again = {n: score_pairs(found.open(encoder, "fp32"), p).spearman for n, p in DEV.items()}
        assert again == pytest.approx(found.scores, abs=1e-9)


def test_no_random_number_is_drawn(bert_folder):
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    score_untouched(bert_folder, DEV)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[:2]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_it_is_scored_once_and_kept_for_a_resumed_job(bert_folder, tmp_path, monkeypatch, capsys):
    run, other, scored = Recorded(), str(tmp_path / "other"), []
    shutil.copytree(bert_folder, other)
    (tmp_path / "out").mkdir()

    def score(encoder, *more):
        scored.append(encoder)
        return score_untouched(encoder, *more)

    monkeypatch.setattr(module, "score_untouched", score)
    own = {bert_folder: "fp32"}
    first, again = (baselines(tmp_path / "out", own, DEV, run) for _ in range(2))
    assert first == again == {bert_folder: score_untouched(bert_folder, DEV, "fp32")}
    assert scored == [bert_folder]
    found = first[bert_folder]
    assert run.sent_tags == [{"baseline": found.reading}]
    by_name = {f"baseline_spearman.{name}": score for name, score in found.scores.items()}
    assert run.sent_metrics == [(0, {"baseline_spearman": found.spearman, **by_name})]
    stderr = capsys.readouterr().err
    assert stderr.count("baseline: ") == 1
    assert f"with {found.reading} scores {found.spearman:.2f} (a + b)" in stderr

    both = baselines(tmp_path / "out", {**own, other: "fp32"}, DEV, run)
    assert scored == [bert_folder, other]
    assert both[other].scores == pytest.approx(found.scores)
    assert set(json.loads((tmp_path / "out" / BASELINE_FILE).read_text())) == {bert_folder, other}


def test_the_driver_scores_in_what_it_is_fast_in(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        module, "score_untouched", lambda encoder, dev, *how: seen.append(how[0]) or FOUND
    )
    for asked in ("bf16", "auto", "fp32"):
        baselines(tmp_path, {f"trained in {asked}": asked}, DEV, Recorded())
    assert seen == ["auto", "auto", "fp32"]


def test_what_was_found_is_handed_on(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "score_untouched", None)
    run = Recorded()
    found = baselines(tmp_path, {"somewhere": "fp32"}, DEV, run, {"somewhere": FOUND})
    assert found == {"somewhere": FOUND}
    assert run.sent_metrics == [(0, {"baseline_spearman": 73.9})]
    assert baselines(tmp_path, {"somewhere": "fp32"}, DEV, run) == found


@pytest.mark.drawn
@pytest.mark.parametrize("score", [64.4, 80.0])
def test_the_report_shows_the_baseline_as_a_line_and_a_result_below_it_as_a_warning(
    tmp_path, score
):
    rows = {0: {"dev_spearman": 20.0}, 1: {"loss": 2.0}, 2: {"loss": 1.0, "dev_spearman": score}}
    result = {**WORSE, "dev_spearman": score, "dev_spearman_before": 20.0, "mlflow_run_id": None}
    write_training_report(tmp_path / "report.html", result, rows, TrainSettings())
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"<text[^>]*>untouched: its own mean pooling 73\.90</text>", page)
    assert ("<strong>warning: the trained encoder" in page) is (score < 73.9)
    assert f"{abs(score - 73.9):.2f} {'worse' if score < 73.9 else 'better'} than" in page
    assert "<td>baseline_spearman</td><td>73.9</td>" in page
    assert "<td>dev</td><td>built-in pairs</td>" in page
    assert "sts-b" not in page
    assert "mlflow_run_id" not in page, "as in the terminal, it has no value"
