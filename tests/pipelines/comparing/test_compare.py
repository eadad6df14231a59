"""cotbert compare: one budget for all, a row for each entry, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from cotbert_core.errors import UserError
from cotbert_core.settings import flatten, override
from pipelines.cli import main
from pipelines.comparing.entries import BUDGET, Comparison, Entry, same_budget
from pipelines.comparing.report import NOT_TRAINED, cells, dots, write_compare_report
from pipelines.comparing.rows import (
    baseline_sentences,
    trained_row,
    untouched_rows,
    with_differences,
)
from pipelines.recipes import RECIPES, changed_paths
from pipelines.reports import html_page
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import dev_metric, graded_sets
from pipelines.training.training_run import RunOptions

SPREAD = {"dev_mean": 70.25, "dev_spread": 0.5, "dev_min": 69.9, "dev_max": 70.6}
ROW = {"entry": "simcse-base", "method": "simcse", "dev_before": 31.0, **SPREAD}
ROW |= {"dev": [69.9, 70.6], "seconds": 91.4}


def entries_of(names, changes=(), changed=()):
    return same_budget(names, lambda name: override(RECIPES[name](), dict(changes)), set(changed))


def test_the_budget_is_the_first_recipes():
    names = ["denosent-base", "whitening", "flow", "cot-bert-base"]
    entries = entries_of(names)
    assert list(entries) == names
    assert entries["whitening"] is None is entries["flow"]
    first, second = flatten(entries["denosent-base"]), flatten(entries["cot-bert-base"])
    assert first == flatten(RECIPES["denosent-base"]())
    for key in BUDGET:
        assert second[key] == first[key], key
    alone = flatten(RECIPES["cot-bert-base"]())
    assert second["batch_size"] == 64 != alone["batch_size"]
    own = {key: value for key, value in alone.items() if key not in BUDGET}
    assert own == {key: second[key] for key in own}, "method, templates and optimizer stay"


def test_what_is_set_is_set_in_all():
    changes = {"batch_size": 32, "optimizer.learning_rate": 1e-3}
    made = entries_of(["simcse-base", "promptbert-base"], changes, {"batch_size"}).values()
    assert {(s.batch_size, s.optimizer.learning_rate) for s in made} == {(32, 1e-3)}
    changed = changed_paths(None, ["batch_size=32", "method.temperature=0.1"])
    assert changed == {"batch_size", "method.temperature"}


def test_variants_of_a_recipe_have_its_settings_but_one():
    texts = (
        "cot-bert-base",
        "cot-bert-base,name=no denoising,method.denoise=none",
        "cot-bert-base,templates.anchor=cot-bert/only-prefix/anchor, templates.positive=cot-bert/"
        "only-prefix/positive,templates.negative=a [X] means , not [MASK] .",
    )
    entries = entries_of(texts)
    whole, bare, worded = map(flatten, entries.values())
    assert [*entries][:2] == ["cot-bert-base", "no-denoising"]
    assert "/" not in [*entries][2], "a folder's name"
    assert bare == whole | {"method.denoise": "none"}
    assert worded == whole | {
        "templates.anchor": "cot-bert/only-prefix/anchor",
        "templates.positive": "cot-bert/only-prefix/positive",
        "templates.negative": "a [X] means , not [MASK] .",
    }


def test_a_name_that_no_folder_has_is_changed_aloud(capsys):
    assert Entry.parse("cot-bert-base,name=no: denoising").name == "no-denoising"
    note = "note: entry 'no: denoising' is called no-denoising, the name of its folder\n"
    assert capsys.readouterr().err == note
    Entry.parse("cot-bert-base,name=without")
    Entry.parse("cot-bert-base,templates.anchor=a [X] means [MASK] .")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["simcse-base", "bert"], "unknown recipe or readout 'bert': choose one of .*whitening"),
        (["last", "simcse-base", "last"], "name one twice"),
        (["last", "whitening"], "hold no recipe: give at least one"),
        (["simcse-base,seed=1"], "changes seed, which .* by --set or --seeds"),
        (["simcse-base,method.readout=cls,method.readout=mean"], "gives a setting or its name tw"),
        (["simcse-base,name=a,name=b"], "gives a setting or its name twice"),
        ([f"simcse-base,name={201 * 'a'}"], "has a name of 201 characters: give it a short one"),
        (["simcse-base,name=.."], "has a name without a letter or digit"),
        (["simcse-base,name="], "has a name without a letter or digit"),
        (["simcse-base,max_steps=9"], "changes max_steps, which all entries .* by --set"),
        (["simcse-base", "last,method.readout=cls"], "changes settings of 'last', which is no rec"),
        (["simcse-base", "simcse-base,method.blur=1"], "method.blur"),
        (["simcse-base", "cot-bert-base,name=simcse-base"], "name one twice"),
    ],
)
def test_entries_that_make_no_comparison_are_refused(names, fault):
    with pytest.raises(UserError, match=fault):
        entries_of(names)


def test_differences_from_the_first_recipe_are_paired_by_seed():
    def row(name, dev, test=(), method="simcse"):
        return {"entry": name, "method": method, "dev": list(dev), "test": list(test)}

    first = row("a", [1, 2, 3, 4], [60, 61, 63, 64])
    better = row("b", [1, 2, 3, 4], [61, 62.1, 64, 64.9])
    noisy = row("c", [1, 2, 3, 4], [59, 64, 60, 67])
    untrained = row("last", [70], [99], NOT_TRAINED)
    rows = with_differences([untrained, first, better, noisy])
    assert not any("difference" in row for row in rows[:2])
    assert rows[2]["difference"] == pytest.approx(1.0)
    assert rows[3]["difference"] == pytest.approx(0.5)
    alone = [ttest_rel(r["test"], first["test"]).pvalue for r in (better, noisy)]
    assert alone[0] < 0.01 < 0.5 < alone[1], "paired: the seeds differ more than the recipes"
    assert [r["p"] for r in rows[2:]] == pytest.approx([2 * alone[0], alone[1]])
    by_dev = with_differences([row("a", [1, 2, 3]), row("b", [2, 3, 4.5])])
    assert by_dev[1]["difference"] == pytest.approx(7 / 6)
    for gap in (0.0, 0.6):  # queries found first are counted in steps: 1 of 500 is 0.2
        same = with_differences([row("a", [50.0, 50.4]), row("b", [50.0 + gap, 50.4 + gap])])
        assert same[1]["difference"] == pytest.approx(gap)
        assert "p" not in same[1], "the seeds do not differ"
    assert "p" not in with_differences([row("a", [1]), row("b", [2])])[1], "one seed has no spread"


def test_the_score_of_equal_vectors_is_undefined():
    collapsed = dict.fromkeys(("dev_mean", "dev_spread", "dev_min", "dev_max"), np.nan)
    shown = cells({**ROW, **collapsed, "difference": np.nan})
    assert shown[2:8] == ("31.00", *3 * ("undefined",), "", "undefined")


@pytest.mark.drawn
def test_the_picture_has_a_point_for_every_seed():
    one, two = dots([ROW]), dots([{**ROW, "dev": [69.9, 70.0, 70.1, 70.6]}])
    assert one.count("<use") + 2 == two.count("<use")
    assert "<title>simcse-base: 69.90</title>" in two
    untrained = {**ROW, "method": "not trained", "dev": [31.0]}
    assert dots([untrained]).count("<use") == one.count("<use") - 2


@pytest.fixture
def page_of(tmp_path):
    """Return the page of a result of one row."""

    def write(**changes):
        result = {"rows": [ROW], "seeds": [0], "dev": "pairs", "tasks": [], "verdicts": []}
        path = tmp_path / "report.html"
        write_compare_report(
            path, {**result, "budget": {"max_steps": None, "epochs": 1}, **changes}
        )
        return path.read_text()

    return write


def test_the_page_names_tasks_and_spreads_only_where_there_are_some(page_of):
    page = page_of(seeds=[0, 1])
    assert "no task" not in page
    assert "<th>test</th>" not in page
    assert "mean and sample standard deviation" in page
    assert "<td>max_steps</td><td>null</td>" in page
    assert "<td>70.25 ± 0.50</td><td>69.90</td><td>70.60</td>" in page
    compared = {"test_mean": 64.0, "test_spread": 0.25, "difference": -0.5, "p": 0.0324}
    page = page_of(rows=[{**ROW, **compared, "dev": [70.25]}], tasks=["STS12", "STS-B"])
    assert "over STS12, STS-B" in page
    assert "<th>test</th>" in page
    assert "<td>64.00</td><td>-0.50 (p 0.032)</td>" in page
    assert "standard deviation" not in page


@pytest.mark.drawn
def test_a_comparison_on_ones_own_documents_names_what_it_measured(page_of):
    own, graded = page_of(metric="dev_found_first"), page_of(metric="dev_spearman")
    assert own.count("dev queries found first in %") == 2, "a note and an axis"
    assert "dev Spearman" not in own
    assert graded.count("dev Spearman x 100") == 2
    assert "found first" not in graded


def test_two_encoders_have_two_baselines(bert_folder, roberta_folder):
    dev = graded_sets(RECIPES["simcse-base"](), None, None)
    entries = {
        name: override(RECIPES["simcse-base"](), {"encoder": encoder, "precision": "fp32"})
        for name, encoder in (("one", bert_folder), ("other", roberta_folder))
    }
    comparison = Comparison({**entries, "last": None}, (0,), dev)
    found = {
        bert_folder: Baseline("mean pooling", None, {"built-in pairs": 60.0}),
        roberta_folder: Baseline("[CLS] vector", None, {"built-in pairs": 70.0}),
    }
    rows = untouched_rows(found, dict.fromkeys(found, "fp32"), None)
    assert [(row["entry"], row["dev_mean"]) for row in rows] == [
        (f"untouched {Path(bert_folder).name}: mean pooling", 60.0),
        (f"untouched {Path(roberta_folder).name}: [CLS] vector", 70.0),
    ]
    names = ("one", "other", "last")
    trained = [{"entry": name, "dev_mean": 65.0, "dev_before": 65.0} for name in names]
    one, other = baseline_sentences(trained, comparison, found)
    assert one == (
        "Recipe one scores 65.00 on dev (built-in pairs): 5.00 better than the untouched encoder, "
        "which scores 60.00 by mean pooling. Dev scores chose the step, so some of the gain may be "
        "chance."
    )
    two = baseline_sentences(trained[:1], replace(comparison, seeds=(0, 1)), found)
    assert two == [one.replace("Recipe one", "Recipe one (mean of 2 seeds)")]
    assert other.startswith("warning: recipe other scores 65.00 on dev (built-in pairs): 5.00 wor")
    assert other.endswith(
        "or with the pooling of the untouched encoder (--set method.readout=cls)."
    )


def test_the_untouched_encoder_is_scored_on_the_tasks_too(bert_folder):
    tasks = SimpleNamespace(scores=lambda encode: {"average": float(encode(["oil"]).shape[1])})
    found = {bert_folder: Baseline("mean pooling", "last", {"a": 60.0})}
    (row,) = untouched_rows(found, {bert_folder: "fp32"}, tasks)
    assert row["entry"] == "untouched: mean pooling"
    assert row["test_mean"] == 32.0
    assert row["seconds"] == 0.0, "nothing was trained"


def test_the_tasks_are_scored_in_the_precision_of_the_training(tmp_path, monkeypatch):
    recipe = override(RECIPES["simcse-base"](), {"precision": "fp32"})
    tasks = SimpleNamespace(folder="senteval", sts=("STS-B",))
    dev = graded_sets(recipe, None, None)
    comparison = Comparison({"simcse-base": recipe}, (3,), dev, tasks)
    before_and_after = {dev_metric(dev).before: 31.0, dev_metric(dev).name: 70.0}
    result = before_and_after | {"steps": 1, "sentences_per_second": 2.0}
    monkeypatch.setattr("pipelines.comparing.rows.run_seed", lambda *given: result)
    scored = []

    def evaluate(options, path, parent, name):
        scored.append((Path(options.model), options.tasks, options.precision, parent, name))
        path.parent.mkdir()
        path.write_text(json.dumps({"average": 60.0}))

    monkeypatch.setattr("pipelines.comparing.rows.evaluate", evaluate)
    row = trained_row("simcse-base", comparison, None, tmp_path, RunOptions(parent="run"), None)
    assert row["test"] == [60.0]
    assert scored == [(tmp_path / "seed-3" / "model", "STS-B", "fp32", "run", "simcse-base seed 3")]


def test_a_variant_is_recorded_with_its_recipe_and_its_changes(tmp_path, monkeypatch, page_of):
    texts = ("simcse-base", "simcse-base,name=warm,method.temperature=0.07", "last")
    given = {entry.name: entry for entry in map(Entry.parse, texts)}
    dev = graded_sets(RECIPES["simcse-base"](), None, None)
    comparison = Comparison(entries_of(texts), (3,), dev, None, given)
    variants = {"warm": {"recipe": "simcse-base", "changes": {"method.temperature": 0.07}}}
    assert comparison.variants == variants
    known = []

    def run_seed(settings, seed, corpus, dev, folder, options, process):
        known.append((options.name, options.recipe))
        dev_scores = {dev_metric(dev).before: 31.0, dev_metric(dev).name: 70.0}
        return dev_scores | {"steps": 1, "sentences_per_second": 2.0}

    monkeypatch.setattr("pipelines.comparing.rows.run_seed", run_seed)
    trained_row("warm", comparison, None, tmp_path, RunOptions(), None)
    assert known == [("warm seed 3", "simcse-base")]
    row = "<td>warm</td><td>simcse-base</td><td>method.temperature=0.07</td>"
    assert row in page_of(variants=variants)
    assert "Variants" not in page_of()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    subjects = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
    ends = ("on the stage.", "in the green field", "after the answer.", "while they watch.")
    path = tmp_path / "sentences.csv"
    rows = [f"{s} walks {e},{s} saw it {e}" for s in subjects for e in ends]
    path.write_text("\n".join(["text,rewrite", *rows]), encoding="utf-8")
    return path


@pytest.mark.ray_local
def test_the_command_trains_every_recipe_under_every_seed(
    ray_here, own_store, bert_folder, corpus, tmp_path, monkeypatch, capsys, written_states
):
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    entries = ("denosent-base", "simcse-base", "last", "whitening")
    sets = "batch_size=4 max_steps=2 eval_every=2 precision=fp32 dev=sts-b max_length=12"
    command = ["compare", *entries, "--encoder", bert_folder, "--corpus", str(corpus)]
    command += ["--augmented-column", "rewrite", "--seeds", "2", "--output", str(tmp_path / "out")]
    for one in (*sets.split(), "optimizer.warmup_steps=0"):
        command += ["--set", one]
    assert main(command) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "a sample of 24 sentences for vectors of 32 numbers" in message
    assert not (tmp_path / "out").exists(), "found before anything began"
    command.remove("whitening")
    states = written_states(own_store)
    assert main(command) == 0
    assert states == ["FINISHED"] * 5, "killed before, it continues and ends its run"
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    *rows, untouched = result["rows"]
    assert [row["entry"] for row in rows] == list(entries[:-1])
    readings = ("mean pooling", "first-last average", "[CLS] vector")
    assert untouched["entry"] in {f"untouched: {one}" for one in readings}
    assert untouched["dev_mean"] >= result["rows"][2]["dev_mean"], "the best of three readings"
    (kept,) = json.loads((tmp_path / "out" / "baseline.json").read_text()).values()
    assert untouched["dev_mean"] == pytest.approx(kept["scores"]["built-in pairs"])
    assert (result["dev"], result["budget"]["dev"]) == ("built-in pairs", "built-in pairs")
    assert len(result["verdicts"]) == 2, "readouts without training are not held against it"
    for row in result["rows"][:2]:
        runs = [tmp_path / "out" / row["entry"] / f"seed-{seed}" for seed in (0, 1)]
        first, second = (json.loads((run / "result.json").read_text()) for run in runs)
        assert row["dev"] == (scores := [first["dev_spearman"], second["dev_spearman"]])
        assert first["baseline_spearman"] == second["baseline_spearman"] == untouched["dev_mean"]
        assert row["dev_mean"] == pytest.approx(np.mean(scores))
        assert row["dev_spread"] == pytest.approx(np.std(scores, ddof=1))
        assert first["loss"] != second["loss"]
        assert (runs[0] / "model" / "cotbert.json").is_file()
    assert rows[1]["difference"] == pytest.approx(rows[1]["dev_mean"] - rows[0]["dev_mean"])
    assert 0 < rows[1]["p"] <= 1
    assert rows[2]["method"] == "not trained"
    assert rows[2]["dev_before"] == rows[2]["dev_mean"]
    page = (tmp_path / "out" / "report.html").read_text()
    messages = map(html_page.escaped, [untouched["entry"], *result["verdicts"]])
    assert all(text in page for text in ("<svg", *entries[:-1], *messages))
    assert "sts-b" not in page
    own = own_store.get_run(result["mlflow_run_id"]).data
    assert own.metrics["baseline_spearman"] == untouched["dev_mean"]
    assert untouched["entry"] == f"untouched: {own.tags['baseline']}"
    wanted = {"dev": "built-in pairs", "seeds": "0,1", "entries": ",".join(entries[:-1])}
    assert own.params.items() >= wanted.items()
    children = own_store.search_runs(
        [own_store.get_experiment_by_name("cotbert").experiment_id],
        f"tags.mlflow.parentRunId = '{result['mlflow_run_id']}'",
    )
    assert len(children) == 4
    files = {item.path for item in own_store.list_artifacts(result["mlflow_run_id"])}
    assert files == {"report.html", "result.json"}
    names = {"contrastive", "generative", "positive_cosine"}
    assert any(names <= run.data.metrics.keys() for run in children)
    printed = capsys.readouterr()
    assert "± " in printed.out
    assert untouched["entry"] in printed.out
    *_, row, blank, one, other, _, _ = printed.out.splitlines()
    assert [one, other] == result["verdicts"]
    assert row, "no second blank line"
    assert not blank
    assert printed.err.count("baseline: the untouched encoder") == 1, "scored once, handed on"
    for name, message in zip(entries, result["verdicts"], strict=False):
        mean = next(row["dev_mean"] for row in rows if row["entry"] == name)
        assert name in message
        assert ("warning: " in message) is (mean < untouched["dev_mean"])
