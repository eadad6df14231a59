"""The report of a sweep: its tables, its pictures, trials.csv, and trials that went wrong."""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from pipelines.reports import plots as plots_module
from pipelines.tuning.axes import setting_axis
from pipelines.tuning.dropout_curve import dropout_curve
from pipelines.tuning.plots import setting_panels
from pipelines.tuning.report import (
    sorted_trials,
    trials_table,
    write_sweep_report,
    write_trials_csv,
)
from pipelines.tuning.sampled_trials import status_counts, text
from pipelines.tuning.tables import compared_rows

VOID = {"meta", "br", "hr", "img", "link", "input"}


def trial(number: int, settings: dict, score: float | None, status: str = "finished", **more):
    return {
        "name": f"{number:04}",
        "settings": settings,
        "seed": 0,
        "status": status,
        "dev_spearman": score,
        "dev_spearman_before": 30.5,
        "best_step": None if score is None else 20,
        "steps": 20,
        "seconds": 61.2,
        "error": None,
        "mlflow_run_id": f"run{number}",
        **more,
    }


def result(trials: list[dict]) -> dict:
    done = [t for t in trials if t["status"] == "finished"]
    best = max(done, key=lambda t: t["dev_spearman"], default=None)
    return {"space": "mine", "recipe": "cot-bert-base", "best": best, "trials": trials}


def temperatures() -> list[dict]:
    """Twelve trials: eight finished, two stopped, one failed, one that never had a score."""
    trials = [
        trial(
            n,
            {"method.temperature": 0.01 * 1.4**n, "method.denoising": ("pad", "none")[n % 2]},
            80 - 0.1 * n,
            "stopped" if n in (3, 7) else "finished",
        )
        for n in range(10)
    ]
    lost = {"method.temperature": 0.4, "method.denoising": "pad"}
    trials.append(trial(10, lost, None, "failed", error="step 3: loss\n is nan <b>"))
    trials.append(trial(11, lost, None, "unfinished", dev_spearman_before=None, seconds=None))
    return trials


def decoders() -> list[dict]:
    grid = [(d, n, s) for d in (0.8, 0.85, 0.9) for n in (12, 14) for s in (0, 1)]
    return [
        trial(k, {"method.dropout": d, "method.layers": n}, 70 + 10 * d + s, seed=s)
        for k, (d, n, s) in enumerate(grid)
    ]


def variants() -> list[dict]:
    """Two seeds of three; one of the second has failed."""
    scores = {"full": (79.0, 81.0), "only-prefix": (78.0, None), "reversed": (77.5, 77.0)}
    return [
        trial(
            len(scores) * seed + place,
            {"variant": name},
            score,
            "failed" if score is None else "finished",
            seed=seed,
        )
        for seed in (0, 1)
        for place, (name, score) in enumerate((n, pair[seed]) for n, pair in scores.items())
    ]


def panels(pictures: str) -> int:
    return len(re.findall(r'<g id="axes_\d+"', pictures))


def texts(pictures: str) -> list[str]:
    """All texts of plots and their legend, which must be well-formed."""
    ElementTree.fromstring(f"<div>{pictures}</div>")
    found = re.findall(r"<text[^>]*>([^<]*)</text>|([^>\n]+)</li>", pictures)
    return [label or key for label, key in found]


class Page(HTMLParser):
    """Fails at a tag that is not closed in its place; keeps headings, links and table rows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
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

    def handle_startendtag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

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
    [
        (None, "null"),
        (True, "true"),
        (2e-5, "2e-5"),
        (1e-4, "1e-4"),
        (0.05, "0.05"),
        (0.0512345, "0.05123"),
        (12.0, "12"),
        (12800, "12800"),
        ([1, None], "1,null"),
        ("a b", "a b"),
    ],
)
def test_values_are_written_as_a_reader_writes_them(value, shown):
    assert text(value) == shown


def test_the_page_of_a_search_has_what_there_is_to_show(tmp_path):
    trials = temperatures()
    page = page_of(tmp_path, trials)
    assert page.headings == ["Summary", "Score against each setting", "Trials"]
    summary = dict(row for row in page.rows if len(row) == 2)
    assert summary["trials"] == "12: 8 finished, 2 stopped, 1 failed, 1 unfinished"
    assert summary["time of all trials"] == "11:13"  # eleven of 61.2 s
    assert summary["best dev Spearman x 100"].startswith("80.00 (trial 0000, seed 0, step 20")
    assert summary["method.temperature"] == "0.01"
    listed = [row for row in page.rows if re.fullmatch(r"\d{4}", row[0]) and len(row) > 3]
    assert [row[0] for row in listed] == [f"{n:04}" for n in range(12)]
    ways = {"finished": 8, "stopped": 2, "failed": 1, "unfinished": 1}
    assert Counter(row[3] for row in listed) == ways
    assert ["0010", "failed", "step 3: loss is nan <b>"] in page.rows


@pytest.mark.drawn
def test_every_setting_has_a_panel_and_the_signs_are_counted():
    picture = setting_panels(temperatures(), "0000")
    assert panels(picture) == 2
    shown = texts(picture)
    labels = {"best", "finished (8)", "stopped early (2)", "1 failed, 1 without a score"}
    assert labels | {"mean of finished", "before training (30.5, below the axis)"} <= set(shown)
    assert {"method.temperature", "method.denoising", "pad", "none"} <= set(shown)


def test_a_score_before_training_that_is_near_has_its_line():
    trials = [t | {"dev_spearman_before": 78.9 + (n % 2)} for n, t in enumerate(temperatures())]
    near = setting_panels(trials)
    assert "before training (78.9 to 79.9)" in texts(near)
    assert "best" not in texts(near)


@pytest.mark.drawn
def test_long_names_have_a_picture_of_their_own():
    long = [
        trial(n, {"variant": f"variant {n} which has a long name", "method.layers": 12 + n}, 80 + n)
        for n in range(12)
    ]
    pictures = setting_panels(long)
    assert panels(pictures) == 2
    assert {t["settings"]["variant"] for t in long} <= set(texts(pictures))
    assert texts(pictures).index("method.layers") < texts(pictures).index("variant")


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [
        ([0.01, 0.05, 0.3], "log"),
        ([1e-6, 1e-4], "log"),
        ([0.01, 0.2], "linear"),
        ([0.0, 0.1, 5.0], "linear"),
        ([0.05], "linear"),
    ],
)
def test_a_setting_that_spans_much_has_a_logarithmic_axis(numbers, scale):
    axes = Figure().subplots()
    setting_axis(axes, numbers)
    assert axes.get_xscale() == scale


def test_a_grid_has_its_own_values_as_ticks():
    axes = Figure().subplots()
    setting_axis(axes, [0.8, 0.825, 0.85, 0.875, 0.9])
    assert list(axes.get_xticks()) == [0.8, 0.825, 0.85, 0.875, 0.9]
    setting_axis(axes, [0.001, 0.0011, 0.01])  # the first two labels would touch
    assert 0.0011 not in axes.get_xticks()


@pytest.mark.drawn
def test_a_template_is_no_formula():
    trials = [trial(n, {"templates.anchor": t}, 80) for n, t in enumerate(("$x$ & <[X]>", "$"))]
    picture = setting_panels(trials)
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
    without = page_of(tmp_path, variants())
    assert ["variant", "dev Spearman x 100", "seeds"] in without.rows


def test_a_settings_values_stand_beside_figures_too(tmp_path):
    page = page_of(tmp_path, decoders(), published={"0.85": 79.33}, source="DenoSent")
    assert ["method.dropout", "dev Spearman x 100", "trials", "paper"] in page.rows
    spread = statistics.stdev([78.5, 79.5, 78.5, 79.5])
    assert ["0.85", f"79.00 ± {spread:.2f}", "4", "79.33"] in page.rows
    assert "By method.layers" not in page.headings


@pytest.mark.drawn
def test_the_dropout_curve_has_a_line_for_each_depth(tmp_path):
    shown = texts(dropout_curve(decoders()))
    assert {"method.dropout", "method.layers=12", "method.layers=14", "0.8", "0.85", "0.9"} <= set(
        shown
    )
    assert "Score against dropout" in page_of(tmp_path, decoders()).headings
    assert dropout_curve(temperatures()) == ""
    unfinished = [t | {"status": "stopped"} for t in decoders()]
    assert dropout_curve(unfinished) == ""


@pytest.mark.parametrize("height", [82.5, 60.0, 10.0])
def test_the_baseline_of_a_sweep_is_shown(tmp_path, height):
    trials = temperatures()
    against = {"dev": "mine.tsv", "baseline": "[CLS] vector", "baseline_spearman": height}
    whole = result(trials) | against | {"dev_spearman": 80.0}
    write_sweep_report(tmp_path / "report.html", whole)
    html = (tmp_path / "report.html").read_text()
    summary = dict(row for row in Page(html).rows if len(row) == 2)
    assert summary["dev"] == "mine.tsv"
    assert summary["baseline"] == f"untouched: [CLS] vector {height:.2f}"
    assert f"untouched: [CLS] vector {height:.2f}</li>" in html
    assert ("warning: the best trial scores 80.00 on dev (mine.tsv)" in html) is (height > 80)
    assert page_of(tmp_path, trials), "an older result has none"


@pytest.mark.parametrize("height", [90.0, 79.5, 40.0])
def test_the_baseline_lies_within_the_axis(monkeypatch, height):
    figures = []
    monkeypatch.setattr(plots_module, "svg", lambda figure: figures.append(figure) or "")
    setting_panels(temperatures(), "0000", ("untouched: mean pooling", height))
    drawn = [axes for figure in figures for axes in figure.axes]
    assert len(drawn) == 2
    for axes in drawn:
        low, high = axes.get_ylim()
        assert low < height < high
        assert any(list(line.get_ydata()) == [height, height] for line in axes.get_lines())


def test_a_sweep_on_ones_own_documents_names_what_it_measured(tmp_path):
    def own(entry):
        return {k.replace("dev_spearman", "dev_found_first"): v for k, v in entry.items()}

    trials = [own(one) for one in temperatures()]
    best = own(temperatures()[0])
    whole = {"space": "mine", "recipe": "simcse-base", "best": best, "trials": trials}
    whole |= {"dev": "own documents", "dev_found_first": 80.0, "baseline": "mean pooling"}
    write_sweep_report(tmp_path / "page.html", whole | {"baseline_found_first": 85.5})
    page = (tmp_path / "page.html").read_text()
    assert "dev queries found first in %" in page
    assert "Spearman" not in page
    assert "untouched: mean pooling 85.50" in page
    assert "warning: the best trial scores 80.00 on dev (own documents): 5.50 worse" in page


def test_trials_csv_gives_back_what_was_sampled(tmp_path):
    odd = {"templates.negative": None, "method.extended": True, "texts": 'a, "b"\nc'}
    trials = [*temperatures(), trial(12, odd, 85.123456789)]
    write_trials_csv(tmp_path / "trials.csv", trials)
    with (tmp_path / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [t["name"] for t in sorted_trials(trials)]
    assert float(rows[0]["dev_spearman"]) == 85.123456789
    assert (rows[0]["templates.negative"], rows[0]["method.extended"]) == ("null", "true")
    assert rows[0]["texts"] == odd["texts"]
    assert rows[0]["method.temperature"] == "", "it was not drawn"
    by_name = {row["name"]: row for row in rows}
    for one in trials[:12]:
        row = by_name[one["name"]]
        assert float(row["method.temperature"]) == one["settings"]["method.temperature"]
        assert row["status"] == one["status"]
        assert row["error"] == (one["error"] or "")
        assert row["dev_spearman"] == (
            "" if one["dev_spearman"] is None else str(one["dev_spearman"])
        )


def many(count: int) -> list[dict]:
    """Trials with a template each, one in ten failed."""
    return [
        trial(
            n,
            {
                "method.layers": 4 + n % 9,
                "templates.anchor": f'Sentence {n}: "{{}}" costs $5 [MASK]',
            },
            None if n % 10 == 9 else 70 + n / count,
            "failed" if n % 10 == 9 else "finished",
            error="loss is nan" if n % 10 == 9 else None,
        )
        for n in range(count)
    ]


def test_two_hundred_trials_are_folded_and_two_are_not(tmp_path):
    page = page_of(tmp_path, many(200))
    html = (tmp_path / "report.html").read_text()
    assert html.count("<details>") == 1
    shown, folded = html.split("<summary>170 more rows</summary>")
    assert "<td>0198</td>" in shown, "the best"
    assert "<td>0000</td>" in folded
    rows = [row[0] for row in page.rows if re.fullmatch(r"\d{4}", row[0]) and len(row) > 3]
    assert len(set(rows)) == 200
    assert "templates.anchor has 200 values; the 30 with the best trials are shown." in html
    assert len(html) < 1_500_000
    page_of(tmp_path, many(2))
    assert "<details>" not in (tmp_path / "report.html").read_text()


def test_a_column_without_any_value_is_left_out(tmp_path):
    unknown = {"seconds": None, "dev_spearman_before": None}
    trials = [trial(n, {"a": n}, 70.0 + n, **unknown) for n in (1, 2)]
    (header,) = [row for row in page_of(tmp_path, trials).rows if row[0] == "trial"]
    assert {"time", "before"}.isdisjoint(header)
    trials[0]["seconds"] = 3.0
    (header,) = [row for row in page_of(tmp_path, trials).rows if row[0] == "trial"]
    assert "time" in header


@pytest.mark.drawn
def test_a_point_shows_its_trial_on_hover():
    shown = setting_panels(temperatures(), "0000")
    label = (
        "<title>trial 0000, finished: 80.00; method.temperature=0.01 method.denoising=pad</title>"
    )
    assert shown.count(label) == 2, "in the plot of each setting"


def test_colours_of_the_dropout_curve_mean_nothing_in_the_other_plots():
    used = set(re.findall(r"var\(--(\w+)", setting_panels(decoders(), "0011")))
    lines = set(re.findall(r"var\(--(\w+)", dropout_curve(decoders())))
    assert used & lines <= {"page", "ink", "axis", "line"}, "the axes' own"


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
        [trial(0, {"method.temperature": 0.05}, 81.2)],
        [trial(n, {"method.temperature": 0.05 * n}, None, "failed", error="x") for n in (1, 2)],
        [trial(n, {"a": n, "b": None}, None, "unfinished", seed=None, steps=None) for n in (1, 2)],
        [trial(n, {"a": (None, 0.5)[n], "b": n}, (math.nan, 70.0)[n]) for n in (0, 1)],
        [trial(n, {"a": [n], "b": math.inf, "seed": n}, 80.0, "stopped") for n in (0, 1)],
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
    write_trials_csv(tmp_path / "trials.csv", trials)
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 1 + len(trials)
    assert len(trials_table(trials).splitlines()) >= 2 + len(trials)
