"""Scores, differences and reports of made predictions: no encoder is opened."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from cotbert_core.evaluation.bootstrap import resampled_mean
from cotbert_core.evaluation.sts import Predicted
from cotbert_core.evaluation.transfer import Transferred
from pipelines.evaluating.differences import difference_sentences, differences
from pipelines.evaluating.pages import evaluation_page, markdown
from pipelines.evaluating.published import BERT
from pipelines.evaluating.scoring import TRANSFER_AVERAGE, Scored, add_sts, add_transfer
from pipelines.evaluating.tables import Model

TASKS = {"STS12": ("MSRpar", "OnWN"), "STS-B": ("all",)}


def scored(noise, resamples=300, errors=5):
    """Two STS tasks and a transfer task; more noise is a worse model, `errors` seeds its."""
    draw, error = np.random.default_rng(5), np.random.default_rng(errors)
    predicted = {}
    for task, subsets in TASKS.items():
        predicted[task] = {}
        for place, name in enumerate(subsets):
            gold, numbers = draw.integers(0, 6, 150).astype(float), np.arange(150) + 150 * place
            predicted[task][name] = Predicted(gold + noise * error.normal(size=150), gold, numbers)
    right = error.random(200) < 1 - noise / 10
    entry = {"accuracy": 100 * right.mean(), "train": 10, "test": 200}
    result = Scored()
    add_sts(result, predicted, resamples)
    add_transfer(result, {"TREC": Transferred(entry, right)}, resamples)
    return result


def model(label, made, backbone=None, method=None):
    result = made.entries | {"resamples": 300, "sentences_per_second": 10.0, "mlflow_run_id": "r1"}
    return Model(label, result, made, backbone, method)


def compared(*models):
    first, *others = models
    result = {
        "models": {m.label: m.result for m in models},
        "against": first.label,
        "differences": {m.label: differences(first.scored, m.scored) for m in others},
    }
    return result | {"verdicts": difference_sentences(result)}


GOOD, BAD, LIKE = scored(1.0), scored(2.0), scored(1.0, errors=6)


def test_an_entry_has_its_interval_and_the_average_one_of_its_own():
    entries = GOOD.entries
    for task in TASKS:
        own = GOOD.predicted[task]
        score = 100 * spearmanr(own.cosine, own.gold).statistic
        assert entries[task]["spearman"] == pytest.approx(score, abs=1e-9)
        assert entries[task]["low"] < score < entries[task]["high"]
    widths = [entries[t]["high"] - entries[t]["low"] for t in TASKS]
    average = entries["average_high"] - entries["average_low"]
    # Independent errors average out.
    assert 0.5 * np.mean(widths) < average < 0.95 * np.mean(widths)
    assert entries["TREC"]["low"] < entries["TREC"]["accuracy"] < entries["TREC"]["high"]
    assert "low" not in scored(1.0, resamples=0).entries["STS12"]


def test_cosines_without_an_order_have_no_score_in_json():
    flat = Scored()
    pairs = Predicted(np.ones(20), np.arange(20.0), np.arange(20))
    add_sts(flat, {"STS-B": {"all": pairs}}, 100)
    entry = flat.entries["STS-B"]
    assert {entry[key] for key in ("spearman", "low", "high", "mean", "wmean")} == {None}
    assert flat.entries["average"] is None
    json.dumps(flat.entries, allow_nan=False)
    assert {found["difference"] for found in differences(flat, flat).values()} == {None}
    result = compared(model("a", flat), model("b", flat))
    assert "cannot be compared" in result["verdicts"][0]
    json.dumps(result["differences"], allow_nan=False)
    text = markdown(result, [model("a", flat), model("b", flat)])
    assert "cannot be compared" in text
    assert "| STS-B | undefined |  |  |" in text
    assert "nan" not in text


def test_sentences_say_which_is_better_by_how_much():
    result = compared(model("A", BAD), model("B", GOOD))
    gap = GOOD.entries["average"] - BAD.entries["average"]
    first, second = result["verdicts"]
    assert first.startswith(f"B is better than A by {gap:.2f} (")
    assert first.endswith("p 0.007, average Spearman of the STS tasks.")
    assert "average accuracy of the transfer tasks" in second
    (turned, _) = compared(model("A", GOOD), model("B", BAD))["verdicts"]
    assert turned.startswith(f"A is better than B by {gap:.2f} (")
    numbers = [re.findall(r"\((.+)\), p", v)[0] for v in (first, turned)]
    assert numbers[0] == numbers[1]
    (like, _) = compared(model("A", GOOD), model("B", LIKE))["verdicts"]
    assert like.startswith("The difference between B and A is within chance: ")
    few = [Scored(), Scored()]
    for found, one in zip(few, (0.0, 0.25), strict=True):
        values = np.full(5, one)
        found.add("held-out", {"found_first": 100 * one}, resampled_mean(values, 50))
    (small,) = compared(*map(model, "AB", few))["verdicts"]
    assert small.startswith("The difference between B and A is +25.00, queries that find")
    assert small.endswith(
        "texts or pairs without a common sentence, too few to tell it from chance."
    )


def test_an_interval_of_a_difference_ends_where_scores_do():
    """Of few texts the resamples, moved apart, would end beyond 100 points."""
    before, after = [0.0] * 7 + [1.0] + [0.0] * 2, [1.0] * 7 + [0.0] * 3
    few = [Scored(), Scored()]
    for found, values in zip(few, (before, after), strict=True):
        one = 100 * float(np.mean(values))
        found.add("held-out", {"found_first": one}, resampled_mean(np.array(values), 1000))
    moved = few[1].resampled["held-out"] - few[0].resampled["held-out"]
    assert np.percentile(moved, 97.5) > 100
    entry = differences(*few)["held-out"]
    assert (entry["difference"], entry["high"]) == (pytest.approx(60.0), 100.0)
    assert 0 < entry["low"] < 60
    for found, one in zip(few, (0.0, 1.0), strict=True):
        values = resampled_mean(np.full(6, one), 1000)
        found.add("held-out", {"found_first": 100 * one}, values, 6)
    entry = differences(*few)["held-out"]
    assert (entry["low"], entry["high"], entry["p"]) == (pytest.approx(8.15, 0.01), 100.0, 1 / 32)


def test_an_average_of_right_answers_alone_is_not_certain():
    """One task keeps its interval; a second one, far larger, makes the average's half as wide."""
    perfect = Scored()
    for task, count in (("CR", 20), ("MR", 2000)):
        perfect.add(task, {"accuracy": 100.0}, resampled_mean(np.ones(count), 100), count)
    for tasks in (["CR"], ["CR", "MR"]):
        perfect.add_average(TRANSFER_AVERAGE, tasks)
        width = 100 - perfect.entries["CR"]["low"]
        low, high = (perfect.entries[f"{TRANSFER_AVERAGE}_{end}"] for end in ("low", "high"))
        assert (low, high) == (pytest.approx(100 - width / len(tasks), abs=0.5), 100.0)
        entry = differences(perfect, perfect)[TRANSFER_AVERAGE]
        assert [-entry["low"], entry["high"]] == pytest.approx([100 - low] * 2)
    assert 15 < width < 20


def test_equal_answers_to_a_few_texts_do_not_make_models_equal():
    same = Scored()
    same.add("held-out", {"found_first": 50.0}, resampled_mean(np.tile([0.0, 1.0], 10), 100), 20)
    (said,) = compared(model("A", same), model("B", same))["verdicts"]
    assert "is within chance: +0.00 (-16.84 to +16.84), queries" in said


def test_pairs_in_perfect_order_have_no_interval():
    """Every resample is in perfect order too, which is no proof of a correlation of 100."""
    gold, numbers = np.arange(8.0), np.arange(8)
    perfect = Scored()
    add_sts(perfect, {"STS-B": {"all": Predicted(gold, gold, numbers)}}, 100)
    entry = perfect.entries["STS-B"]
    assert (entry["spearman"], entry["low"], entry["high"]) == (pytest.approx(100.0), None, None)
    gap = differences(perfect, perfect)["STS-B"]
    assert gap == {"difference": 0.0, "low": None, "high": None, "p": 1.0}
    add_sts(reverse := Scored(), {"STS-B": {"all": Predicted(gold, -gold, numbers)}}, 100)
    gap = differences(perfect, reverse)["STS-B"]
    assert (gap["difference"], gap["low"], gap["high"]) == pytest.approx((-200.0, -200.0, -200.0))


def rows_of(text, title):
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_has_the_papers_columns_and_rows():
    text = markdown(GOOD.entries, [model("mine", GOOD, BERT, "cot-bert")])
    header, _, mine, ends, *published = rows_of(text, "STS tasks")
    assert header[1:] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg."]
    assert mine[0] == "mine"
    assert mine[1] == f"{GOOD.entries['STS12']['spearman']:.2f}"
    assert (mine[2], ends[2], ends[0]) == ("", "", "95 % interval")
    low, high = (GOOD.entries[f"average_{end}"] for end in ("low", "high"))
    assert ends[-1] == f"{low:.2f} to {high:.2f}"
    (own,) = [row for row in published if "the same method" in row[0]]
    assert own[0] == "[CoT-BERT, BERT-base, unsupervised, the same method; CoT-BERT Table 2]"
    assert own[-1] == "79.40"
    assert "Our average is over the 2 scored tasks, the papers' over 7." in text
    assert "is not in the papers" not in text
    assert "is not in the papers" in markdown(GOOD.entries, [model("mine", GOOD)])
    assert rows_of(text, "Transfer tasks")[2][6] == f"{GOOD.entries['TREC']['accuracy']:.2f}"


def test_a_page_compares_and_draws_every_model():
    models = [model("A & co", BAD), model("B|x", GOOD), model("C", LIKE)]
    result = compared(*models)
    page = evaluation_page(result, models)
    assert "A &amp; co" in page
    assert page.count("<svg") == 3
    assert "Gold against predicted similarity, STS-B" in page
    for title in ("Is the difference significant?", "B|x against A &amp; co"):
        assert f"<h2>{title}</h2>" in page
    text = markdown(result, models)
    assert "&#124;" in text
    tasks = [row[0] for row in rows_of(text, "C against A &amp; co")[2:]]
    assert tasks == [*TASKS, "average", "TREC", "transfer_average"]


def test_other_tasks_have_a_table():
    mteb = {"mteb_reranking_average": 40.0, "mlflow_run_id": "r"}
    result = {"pairs-test": {"spearman": 50.0, "low": 40.0}, **mteb}
    rows = rows_of(markdown({}, [replace(model("mine", GOOD), result=result)]), "Other tasks")[2:]
    assert rows == [
        ["mine", "pairs-test", "Spearman", "50.00", ""],
        ["mine", "mteb_reranking_average", "main score", "40.00", ""],
    ]
