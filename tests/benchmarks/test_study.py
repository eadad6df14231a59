"""The study of the papers' tables: its commands, statistics, and the page made of its record."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from benchmarks.study import rates
from benchmarks.study.entries import GROUPS, METHODS, READOUTS, TRIPLES
from benchmarks.study.page import page
from benchmarks.study.picture import picture
from benchmarks.study.rates import PROMPT_RATES, PROMPTS_ALONE, RATES, SHARED, best_rate
from benchmarks.study.record import curve
from benchmarks.study.runs import TEACHERS, Study, commands
from benchmarks.study.sections import methods
from benchmarks.study.statistics import (
    HOLDS,
    INCONCLUSIVE,
    OTHERWISE,
    Gap,
    adjusted,
    at_time,
    gap,
    outcome,
)
from benchmarks.study.tables import SIMCSE, Ours, Row, read_tables, readout, trained
from cotbert_core.settings import override
from pipelines.cli import build_parser
from pipelines.comparing.entries import Entry, same_budget
from pipelines.recipes import RECIPES, settings_for
from pipelines.reports.values import p_value

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "docs" / "papers").glob("*.json"))
LABELS = [entry.label for group in GROUPS for entry in group.entries]


def study(output: Path, **changes) -> Study:
    given = {"sentences": Path("lines.txt"), "documents": (Path("a.jsonl"), Path("b.jsonl"))}
    return Study(output, "own/model", Path("SentEval"), **given | changes)


def write_rates(output: Path) -> None:
    """A finished search for learning rates, in which the higher one was the best."""
    for recipe in RECIPES.keys() - SHARED.keys():
        names = [rates.rate_name(recipe, rate) for rate in rates.rates_of(recipe)]
        scores = zip([*names, "untouched"], (50.0, 60.0, 70.0), strict=True)
        rows = [{"entry": name, "dev_mean": score} for name, score in scores]
        (output / "rates" / recipe).mkdir(parents=True)
        (output / "rates" / recipe / "result.json").write_text(json.dumps({"rows": rows}))


@pytest.mark.parametrize("steps", [50, None])
def test_every_command_is_one_and_its_entries_fit_their_recipes(tmp_path, steps):
    write_rates(tmp_path)
    parser, seen = build_parser(), []
    for command in commands(study(tmp_path, steps=steps)):
        arguments = parser.parse_args(list(command.words))
        assert arguments.command_name == command.words[0]
        seen.append(command.words[0])
        if command.words[0] != "compare":
            continue
        entries = same_budget(arguments.entries, lambda name: RECIPES[name](), set())
        if steps is not None and "rates" not in command.finished.parts:
            for name, one in entries.items():
                best = PROMPT_RATES[1] if name in PROMPTS_ALONE else RATES[1]
                assert one.optimizer.learning_rate == best
    jobs = {"prepare", "evaluate", "search-template", "tokens", "geometry", "compare"}
    assert set(seen) == jobs
    recipes = {entry.recipe for group in GROUPS for entry in group.entries}
    assert seen.count("compare") == len(LABELS) + (len(recipes - {*SHARED}) if steps else 0)


def test_a_rate_whose_score_is_undefined_is_not_the_best(tmp_path):
    folder = tmp_path / "rates" / "simcse-base"
    folder.mkdir(parents=True)
    scores = zip(RATES, (math.nan, 50.0), strict=True)
    rows = [{"entry": f"simcse-base-{rate:g}", "dev_mean": score} for rate, score in scores]
    (folder / "result.json").write_text(json.dumps({"rows": rows}))
    assert best_rate(tmp_path, "simcse-base") == RATES[1]


def test_those_that_are_taught_learn_from_models_of_a_seed_that_is_not_reported(tmp_path):
    write_rates(tmp_path)
    words = [w for c in commands(study(tmp_path)) for w in c.words if w.startswith("rankcse")]
    (entry,) = map(Entry.parse, words)
    for key, recipe in zip(("teacher", "second_teacher"), TEACHERS, strict=True):
        run = tmp_path / "rates" / recipe / f"{recipe}-{RATES[1]:g}"
        assert entry.changes[f"method.{key}"] == str(run / "seed-100" / "model")
    assert entry.changes["optimizer.learning_rate"] == RATES[1]
    assert best_rate(tmp_path, "simcse-supervised") == RATES[1], "SimCSE's"


@pytest.mark.parametrize(
    ("recipe", "searched"),
    [
        ("cot-bert-base", {"cot-bert-base"}),
        ("dclr-base", {*TEACHERS}),
        ("conpvp-base", {"cot-bert-base"}),
    ],
)
def test_rates_are_searched_for_what_is_trained_and_its_teachers(tmp_path, recipe, searched):
    write_rates(tmp_path)
    trials = [c.finished.parent for c in commands(study(tmp_path, recipes=(recipe,)))]
    assert {folder.name for folder in trials if folder.parent.name == "rates"} == searched


@pytest.mark.parametrize("steps", [50, None])
@pytest.mark.parametrize("group", [group.name for group in GROUPS])
def test_the_corpora_of_a_group_alone_are_prepared_before_they_are_read(tmp_path, group, steps):
    write_rates(tmp_path)
    made = set()
    for command in commands(study(tmp_path, groups=(group,), steps=steps)):
        words = command.words
        if words[0] == "prepare":
            made.add(words[words.index("--output") + 1])
        elif "--corpus" in words:
            assert words[words.index("--corpus") + 1] in made


def test_every_row_of_the_papers_stands_for_something_that_is_run():
    assert len(set(LABELS)) == len(LABELS)
    known = {"trained": LABELS, "readouts": [*READOUTS], "transfer": LABELS}
    rows = [row for rows in read_tables().values() for row in rows]
    for row in rows:
        for ours in (row.ours, row.against):
            assert not isinstance(ours, Ours) or ours.name in known[ours.part], row.what
        published = [r for r in rows if r.ours == row.against and r.published]
        assert published or row.against is None, row.what
    in_tables = {row.ours.name for row in rows if isinstance(row.ours, Ours)}
    assert {*LABELS, *READOUTS} - in_tables == {"cot-bert-mask"}


# What a command that begins with an option continues.
CONTINUED = {
    "CoT-BERT": "cot-bert-base",
    "PromptBERT": "promptbert-base",
    "DenoSent": "denosent-base --set method.positive=rest",
}


def test_the_command_of_a_row_trains_with_the_settings_of_its_entry():
    entries = {entry.label: entry for group in GROUPS for entry in group.entries}
    for paper, rows in read_tables().items():
        for row in rows:
            if not isinstance(row.ours, Ours) or row.ours.part != "trained":
                continue
            command = row.command.split("`")[0].removeprefix("cotbert train ")
            words = command.split()
            if words[0] == "--set":
                words = [*CONTINUED[paper].split(), *words]
            if words[0] not in RECIPES:  # such as a sweep
                continue
            given = [word for option, word in pairwise(words) if option == "--set"]
            run = entries[row.ours.name]
            trained_with = override(RECIPES[run.recipe](), run.changes)
            assert settings_for(words[0], None, given, {}) == trained_with, row.what


def record(**tests) -> dict:
    """A record of trained entries with these scores by seed, and two untrained readouts."""
    entries = {name.replace("_", "-"): {"test": values} for name, values in tests.items()}
    readouts = {"last": 60.0, "first-last": 61.0, "static": 50.0}
    scored = {n: {"score": x, "low": x - 2, "high": x + 2} for n, x in readouts.items()}
    return {"trained": entries, "readouts": scored}


def test_gaps_are_paired_by_seed():
    one, other = [50.0, 52.0, 57.0], [51.0, 53.2, 57.9]
    found = gap(record(a=one, b=other), trained("b"), trained("a"))
    assert found.mean == pytest.approx(np.mean(other) - np.mean(one))
    assert found.p == pytest.approx(ttest_rel(other, one).pvalue)
    assert found.p < 0.02, "not for unpaired ones, whose spread is larger than the gap"
    fewer = gap(record(a=one, b=other[:2]), trained("b"), trained("a"))
    assert fewer.mean == pytest.approx(1.1), "the seeds that both have"
    constant = gap(record(a=one), trained("a"), readout("static"))
    assert constant.mean == pytest.approx(3.0)
    assert gap(record(a=one), trained("a"), trained("c")) is None
    assert gap(record(), readout("last"), readout("static")).p is None
    alone = gap(record(a=one, b=other[:1]), trained("a"), trained("b"))
    assert alone == Gap(one[0] - other[0], None), "a single seed is not a constant"
    moved = gap(record(a=one, b=[score + 0.1 for score in one]), trained("b"), trained("a"))
    assert (moved.mean, moved.p) == (pytest.approx(0.1), None), "equal differences have p = 0"
    undefined = gap(record(a=one, b=[50.0, math.nan, 57.0]), trained("b"), trained("a"))
    assert math.isnan(undefined.mean)
    assert undefined.p is None
    same = gap(record(a=one, b=one), trained("a"), trained("b"))
    assert (same.mean, same.p) == (0, 1)
    both = adjusted([found, None, same, gap(record(), readout("last"), readout("static"))])
    assert both[0].p == pytest.approx(2 * found.p)
    assert (both[1], both[2].p, both[3].p) == (None, 1, None)


def test_a_method_is_not_compared_with_itself():
    """SimCSE with SimCSE, p = 1, would make all adjusted p-values larger."""
    record = json.loads(RECORDS[-1].read_text("utf-8"))
    names = [e.label for e in METHODS.entries if e.label in record["trained"]]
    names.remove(SIMCSE.name)
    gaps = adjusted([gap(record, trained(name), SIMCSE) for name in names])
    for name, found in zip(names, gaps, strict=True):
        line = re.search(rf"(?m)^\| {name} \|.*$", methods(record))[0]
        assert f"{found.mean:+.2f} ({p_value(found.p)})" in line


@pytest.mark.parametrize(
    ("ours", "paper", "said"),
    [
        ([62.0, 63.1, 64.0], "79.4", HOLDS),
        ([62.0, 63.1, 64.0], "70.1", OTHERWISE),
        ([58.0, 59.1, 60.0], "70.1", HOLDS),
        ([59.0, 63.1, 61.0], "79.4", INCONCLUSIVE),
        ([62.0, 63.1, 64.0], "76.25", ""),
        ([62.0, 63.1, 64.0], "below one head", OTHERWISE),
        ([58.0, 59.1, 60.0], "below one head", HOLDS),
    ],
)
def test_an_order_holds_only_where_the_seeds_tell(ours, paper, said):
    row = Row("a row", "", paper, trained("a"), SIMCSE)
    values = record(a=ours, simcse_base=[60.0, 61.0, 62.0])
    assert outcome(values, row, gap(values, trained("a"), SIMCSE), 76.25) == said


@pytest.mark.parametrize(("name", "said"), [("static", HOLDS), ("first-last", INCONCLUSIVE)])
def test_readouts_are_separate_by_their_intervals(name, said):
    row = Row("a row", "", "56.02", readout(name), readout("last"))
    found = gap(record(), readout(name), readout("last"))
    assert outcome(record(), row, found, 70.0) == said


def test_one_seed_of_a_training_tells_no_order():
    """The interval of a transfer average is over the examples, and does not cover other seeds."""
    scored = {n: {"score": x, "low": x - 1, "high": x + 1} for n, x in (("a", 70.0), ("b", 75.0))}
    values = record() | {"transfer": scored}
    ours, against = Ours("transfer", "b"), Ours("transfer", "a")
    row = Row("a row", "", "85.49", ours, against)
    assert outcome(values, row, gap(values, ours, against), 80.0) == INCONCLUSIVE


def test_a_curve_is_read_at_a_time(tmp_path):
    checks = [{"step": step, "dev_spearman": v} for step, v in ((0, 30.0), (2, 44.0), (3, 41.0))]
    steps = [{"step": n, "step_seconds": seconds} for n, seconds in ((1, 0.5), (2, 0.5), (3, 2.0))]
    lines = sorted([*steps, *checks], key=lambda line: line["step"])
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert curve(path) == [(0.0, 30.0), (1.0, 44.0), (3.0, 41.0)]
    found = [at_time(curve(path), seconds) for seconds in (0.9, 1.0, 5.0)]
    assert found == [30.0, 44.0, 44.0], "the best step's model is the one that is kept"


def test_the_page_is_what_the_records_say():
    """No number on it is typed by hand."""
    records = [json.loads(path.read_text("utf-8")) for path in RECORDS]
    assert (ROOT / "docs" / "papers.md").read_text("utf-8") == page(records)
    assert (ROOT / "docs" / "methods.svg").read_text("utf-8") == picture(records[-1])


def test_a_study_of_one_seed_has_a_page_without_tests_between_methods():
    record = json.loads(RECORDS[0].read_text("utf-8"))
    for entry in record["trained"].values():
        for name in ("seeds", "dev", "test", "steps", "curves"):
            entry[name] = entry[name][:1]
        entry["tasks"] = {task: scores[:1] for task, scores in entry["tasks"].items()}
    assert ", p 0." not in page([record])
    assert picture(record).startswith("<svg")


def test_a_study_of_published_recipes_has_a_page_without_a_common_budget():
    record = json.loads(RECORDS[0].read_text("utf-8"))
    record |= {"about": record["about"] | {"steps": None}, "rates": {}}
    for entry in record["trained"].values():
        entry["rate"] = None
    made = page([record]), picture(record)
    assert all("ach recipe as published, " in text and "None" not in text for text in made)


def test_every_entry_has_five_seeds_on_the_second_encoder():
    trained = json.loads(RECORDS[1].read_text("utf-8"))["trained"]
    assert {*trained} == {*LABELS}
    assert all(entry["seeds"] == [0, 1, 2, 3, 4] for entry in trained.values())


def test_the_record_has_fourteen_methods_of_five_seeds():
    trained = json.loads(RECORDS[0].read_text("utf-8"))["trained"]
    methods = [trained[e.label] for e in METHODS.entries if e.label in trained]
    assert len(methods) >= 14
    assert all(len(entry["test"]) >= 5 for entry in methods)
    assert {g.corpus for g in GROUPS} >= {TRIPLES}
