"""The report of a sweep: its tables, its pictures, and trials that went wrong."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cotbert_core.training.dev_scores import sort_key
from pipelines.reports import plots as plots_module
from pipelines.tuning.plots import setting_plots
from pipelines.tuning.report import write_sweep_report
from pipelines.tuning.sampled_trials import sorted_trials, status_counts, text
from pipelines.tuning.tables import compared_rows, trials_table

VOID = {"meta", "br", "hr", "img", "link", "input"}
KEY = "method.temperature"
UNTOUCHED = ("untouched: mean pooling 60.00", 60.0)


def trial(number: int, settings: dict, score: float | None, status: str = "finished", **more):
    return {
        "name": f"{number:04}",
        "settings": settings,
        "seed": 0,
        "status": status,
        "dev_spearman": score,
        "dev_spearman_before": 30.5,
        "best_step": score and 20,
        "steps": 20,
        "training_seconds": 61.2,
        "error": None,
        "mlflow_run_id": f"run{number}",
        **more,
    }


def result(trials: list[dict]) -> dict:
    done = [t for t in trials if t["status"] == "finished"]
    best = max(done, key=lambda t: sort_key(t["dev_spearman"]), default=None)
    return {
        "space": "mine",
        "recipe": "cot-bert-base",
        "dev": "mine.tsv",
        "dev_spearman": best and best["dev_spearman"],
        "baseline": "mean pooling",
        "baseline_spearman": 60.0,
        "best": best,
        "trials": trials,
        "training_seconds": sum(t["training_seconds"] for t in trials),
        "mlflow_parent_run_id": None,
    }


def temperatures() -> list[dict]:
    """Twelve trials: eight finished, two stopped, one failed, one that never had a score."""

    def one(n: int) -> dict:
        settings = {KEY: 0.01 * 1.4**n, "method.denoising": ("pad", "none")[n % 2]}
        return trial(n, settings, 80 - 0.1 * n, "stopped" if n in (3, 7) else "finished")

    trials = [one(n) for n in range(10)]
    lost = {KEY: 0.4, "method.denoising": "pad"}
    trials.append(trial(10, lost, None, "failed", error="step 3: loss\n is nan <b>"))
    unknown = {"dev_spearman_before": None, "training_seconds": 0.0}
    trials.append(trial(11, lost, None, "unfinished", **unknown))
    return trials


def decoders() -> list[dict]:
    grid = [(d, n, s) for d in (0.8, 0.85, 0.9) for n in (12, 14) for s in (0, 1)]
    return [
        trial(k, {"method.dropout": d, "method.layers": n}, 70 + 10 * d + s, seed=s)
        for k, (d, n, s) in enumerate(grid)
    ]


def variants() -> list[dict]:
    """Two seeds of three; one of the second has failed."""
    scores = (
        (("full", 79.0), ("only-prefix", 78.0), ("reversed", 77.5)),
        (*(("full", 81.0), ("only-prefix", None), ("reversed", 77.0)),),
    )
    return [
        trial(3 * seed + n, {"variant": name}, score, "finished" if score else "failed", seed=seed)
        for seed in (0, 1)
        for n, (name, score) in enumerate(scores[seed])
    ]


def texts(pictures: str) -> list[str]:
    """All texts of plots and their legend, which must be well-formed."""
    ElementTree.fromstring(f"<div>{pictures}</div>")
    found = re.findall(r"<text[^>]*>([^<]*)</text>|([^>\n]+)</li>", pictures)
    return [label or key for label, key in found]


class Page(HTMLParser):
    """Fails at a tag that is not closed in its place; keeps headings, links and table rows."""

    def __init__(self, html):
        super().__init__()
        self.open, self.links, self.headings, self.rows = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def page_of(tmp_path: Path, trials: list[dict], **more) -> Page:
    write_sweep_report(tmp_path / "report.html", result(trials), **more)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert all(link.startswith(("#", "data:")) for link in page.links), "all is in the page"
    return page


def test_trials_are_sorted_by_score_and_those_without_come_last():
    scores = [78.0, None, 81.5, math.nan, 80.0]
    order = sorted_trials([trial(n, {}, score) for n, score in enumerate(scores)])
    assert [t["name"] for t in order] == ["0002", "0004", "0000", "0001", "0003"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "null"), (True, "true"), (2e-5, "2e-5"), (1e-4, "1e-4"), (0.05, "0.05"),
     (0.0512345, "0.05123"), (12.0, "12"), (12800, "12800"), ([1, None], "1,null"), ("a b", "a b")],
)  # fmt: skip
def test_values_are_written_as_a_reader_writes_them(value, shown):
    assert text(value) == shown


def test_the_page_of_a_search_has_what_there_is_to_show(tmp_path):
    trials = temperatures()
    page = page_of(tmp_path, trials)
    assert page.headings == ["Summary", "Score against each setting", "Trials"]
    summary = dict(row for row in page.rows if len(row) == 2)
    assert summary["trials"] == "12: 8 finished, 2 stopped, 1 failed, 1 unfinished"
    assert summary["training time of all trials"] == "11:13"  # eleven of 61.2 s
    assert summary["best dev Spearman x 100"].startswith("80.00 (trial 0000, seed 0, step 20")
    assert summary[KEY] == "0.01"
    listed = [row for row in page.rows if re.fullmatch(r"\d{4}", row[0]) and len(row) > 3]
    assert [row[0] for row in listed] == [f"{n:04}" for n in range(12)]
    ways = {"finished": 8, "stopped": 2, "failed": 1, "unfinished": 1}
    assert Counter(row[3] for row in listed) == ways
    assert ["0010", "failed", "step 3: loss is nan <b>"] in page.rows


@pytest.mark.drawn
def test_every_setting_has_a_plot_with_a_point_for_each_trial_that_has_a_score():
    picture = setting_plots(temperatures(), "0000", UNTOUCHED)
    assert picture.count('<g id="axes_') == 2
    expected = {"best", "finished", "stopped early or unfinished", KEY, "method.denoising"}
    assert expected | {"pad", "none"} <= set(texts(picture))
    hover = "trial 0000, finished: 80.00; method.temperature=0.01 method.denoising=pad"
    assert picture.count(f"<title>{hover}</title>") == 2, "in the plot of each setting"
    assert picture.count("<title>trial ") == 2 * 10


@pytest.mark.drawn
def test_values_that_are_no_numbers_have_a_row_each_the_best_first():
    names = [f"variant {n} which has a long name" for n in range(12)]
    settings = [{"variant": name, "method.layers": 12 + n} for n, name in enumerate(names)]
    trials = [trial(n, one, 80 + n) for n, one in enumerate(settings)]
    pictures = setting_plots(trials, None, UNTOUCHED)
    assert pictures.count('<g id="axes_') == 2
    shown = texts(pictures)
    assert [text for text in shown if text in names] == names[::-1]
    assert shown.index("method.layers") < shown.index("variant")


@pytest.mark.drawn
def test_a_template_is_no_formula():
    trials = [trial(n, {"templates.anchor": t}, 80) for n, t in enumerate(("$x$ & <[X]>", "$"))]
    picture = setting_plots(trials, None, UNTOUCHED)
    assert {"$x$ &amp; &lt;[X]&gt;", "$"} <= set(texts(picture))


def test_variants_stand_beside_the_papers_figures(tmp_path):
    published = {"full": 79.4, "reversed": 78.46}
    assert compared_rows(variants(), "variant", published) == [
        ("full", f"80.00 ± {statistics.stdev([79, 81]):.2f}", "2", "79.40"),
        ("only-prefix", "78.00", "1 of 2", "-"),
        ("reversed", f"77.25 ± {statistics.stdev([77, 77.5]):.2f}", "2", "78.46"),
    ]
    page = page_of(tmp_path, variants(), published=published, source="CoT-BERT, Table 3")
    assert "By variant" in page.headings
    assert ["variant", "dev Spearman x 100", "seeds", "paper"] in page.rows
    assert ["only-prefix", "78.00", "1 of 2", "-"] in page.rows
    assert "CoT-BERT, Table 3" in (tmp_path / "report.html").read_text()
    assert "Stopped" not in (tmp_path / "report.html").read_text()
    stopped = [{**row, "status": "stopped"} if row["seed"] else row for row in variants()]
    page_of(tmp_path, stopped)
    assert "so these means are too high" in (tmp_path / "report.html").read_text()
    without = page_of(tmp_path, variants())
    assert ["variant", "dev Spearman x 100", "seeds"] in without.rows
    alone = [row for row in variants() if row["settings"]["variant"] == "full"]
    assert ["variant", "dev Spearman x 100", "seeds"] in page_of(tmp_path, alone).rows
    # The trials of a setting's value differ in other settings too.
    page = page_of(tmp_path, decoders(), published={"0.85": 79.33}, source="DenoSent")
    assert ["method.dropout", "dev Spearman x 100", "trials", "paper"] in page.rows
    spread = statistics.stdev([78.5, 79.5, 78.5, 79.5])
    assert ["0.85", f"79.00 ± {spread:.2f}", "4", "79.33"] in page.rows
    assert "By method.layers" not in page.headings


@pytest.mark.parametrize("metric", ["spearman", "found_first"])
@pytest.mark.parametrize("height", [85.5, 60.0])
def test_the_baseline_of_a_sweep_is_shown(tmp_path, height, metric):
    def own(entry):
        return {key.replace("spearman", metric): value for key, value in entry.items()}

    made = own(result(temperatures()))
    made |= {"best": own(made["best"]), "trials": [own(one) for one in made["trials"]]}
    made |= {"baseline": "[CLS] vector", f"baseline_{metric}": height}
    write_sweep_report(tmp_path / "report.html", made)
    html = (tmp_path / "report.html").read_text()
    summary = dict(row for row in Page(html).rows if len(row) == 2)
    assert summary["dev"] == "mine.tsv"
    percent, points = (" %", " points") if metric == "found_first" else ("", "")
    assert summary["baseline"] == f"untouched: [CLS] vector {height:.2f}{percent}"
    assert f"untouched: [CLS] vector {height:.2f}{percent}</li>" in html
    scored = f"the best trial scores 80.00{percent} on dev (mine.tsv)"
    warning = f"warning: {scored}: 5.50{points} worse"
    assert (warning in html.replace("&nbsp;", " ")) is (height > 80)
    assert ("dev queries found first in %" in html) is (metric == "found_first")
    assert ("Spearman" in html) is (metric == "spearman")


@pytest.mark.parametrize("height", [90.0, 79.5, 40.0])
def test_the_baseline_lies_within_the_axis(monkeypatch, height):
    figures = []
    monkeypatch.setattr(plots_module, "svg", lambda figure: figures.append(figure) or "")
    setting_plots(temperatures(), "0000", ("untouched: mean pooling", height))
    numbers, rows = [axes for figure in figures for axes in figure.axes]
    for axis, lines in (
        (numbers.yaxis, [line.get_ydata() for line in numbers.get_lines()]),
        (rows.xaxis, [line.get_xdata() for line in rows.get_lines()]),
    ):
        low, high = axis.get_view_interval()
        assert low < height < high
        assert [height, height] in [list(line) for line in lines]


def test_two_hundred_trials_are_folded_and_two_are_not(tmp_path):
    def one(n):
        settings = {"method.layers": 4 + n % 9, "templates.anchor": f'No {n}: "{{}}" is $5 [MASK]'}
        return (
            trial(n, settings, 70 + n / 200) if n % 10 < 9 else trial(n, settings, None, "failed")
        )

    page = page_of(tmp_path, [one(n) for n in range(200)])
    html = (tmp_path / "report.html").read_text()
    assert html.count("<details>") == 1
    shown, folded = html.split("<summary>170 more rows</summary>")
    assert "<td>0198</td>" in shown, "the best"
    assert "<td>0000</td>" in folded
    rows = [row[0] for row in page.rows if re.fullmatch(r"\d{4}", row[0]) and len(row) > 3]
    assert len(set(rows)) == 200
    assert "templates.anchor has 180 values with a score; the 30 best are shown." in html
    assert len(html) < 1_500_000
    page_of(tmp_path, [one(n) for n in range(2)])
    assert "<details>" not in (tmp_path / "report.html").read_text()


def test_a_column_without_any_value_is_left_out(tmp_path):
    trials = [trial(n, {"a": n}, 70.0 + n, dev_spearman_before=None) for n in (1, 2)]
    for score, shown in ((None, set()), (30.0, {"before"})):
        trials[0]["dev_spearman_before"] = score
        (header,) = [row for row in page_of(tmp_path, trials).rows if row[0] == "trial"]
        assert {"before"} & {*header} == shown


def test_the_terminals_table_tells_every_trial_and_error():
    lines = trials_table(temperatures()).splitlines()
    assert lines[0].split()[:4] == ["trial", "dev", "before", "status"]
    first = ["0000", "80.00", "30.50", "finished", "0.01", "pad", "0", "20", "20", "1:01"]
    assert lines[2].split() == first
    assert lines[-2].split()[:6] == ["0011", "-", "-", "unfinished", "0.4", "pad"]
    assert lines[-1] == "0010 failed: step 3: loss is nan <b>"
    assert len(lines) == 2 + 12 + 1


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [trial(0, {KEY: 0.05}, 81.2)],
        [trial(n, {KEY: 0.05 * n}, None, "failed", error="x") for n in (1, 2)],
        [trial(n, {"a": n, "b": None}, None, "unfinished", steps=None) for n in (1, 2)],
        [trial(n, {"a": (None, 0.5)[n], "b": n}, (math.nan, 70.0)[n]) for n in (0, 1)],
        [trial(n, {"a": [n], "b": math.inf}, 80.0, "stopped") for n in (0, 1)],
    ],
    ids=["none", "one", "failed", "unfinished", "diverged", "stopped"],
)
def test_a_sweep_that_went_badly_has_its_page(tmp_path, trials):
    page = page_of(tmp_path, trials)
    assert page.headings[0] == "Summary"
    assert ("Trials" in page.headings) == bool(trials)
    html = (tmp_path / "report.html").read_text()
    assert ("No trial finished" in html) == (status_counts(trials).get("finished", 0) == 0)
    assert "nan" not in html.lower()
    assert len(trials_table(trials).splitlines()) >= 2 + len(trials)
