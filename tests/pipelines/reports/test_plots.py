"""Axes, hover texts and colours of the plots."""

from __future__ import annotations

import re

import pytest
from matplotlib.figure import Figure

from pipelines.reports.colours import ORANGE
from pipelines.reports.plots import (
    ABOVE_ROW,
    HOVERED,
    count_axis,
    number_axis,
    rows_plot,
    score_bars,
)
from pipelines.training.report import training_curves

pytestmark = pytest.mark.drawn
UNTOUCHED = ("untouched", 69.0)


def rows(steps: int, loss=lambda step: 1.0 + step):
    """A run with a dev check before training, at every other step and at the last."""
    made = {step: {"loss": loss(step)} for step in range(1, steps + 1)}
    for step in {0, *range(2, steps + 1, 2), steps}:
        made.setdefault(step, {})["dev_spearman"] = 70.0 + step / steps
    return made


def labels(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def svgs(page: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 1250])
def test_steps_have_whole_ticks(steps):
    for svg in svgs(training_curves(rows(steps), UNTOUCHED)):
        ticks = labels(svg)
        ticks = ticks[: ticks.index("step")]
        assert ticks
        assert all(re.fullmatch(r"−?[\d,]+", tick) for tick in ticks), ticks


def test_a_loss_has_plain_ticks_over_decades_and_within_one():
    loss, _ = svgs(training_curves(rows(30, lambda step: 10 / 1.4**step), UNTOUCHED))
    ticks = labels(loss)
    assert {"0.001", "0.1"} <= set(ticks)
    assert not any("10^" in tick or "mathdefault" in tick for tick in ticks)
    loss, _ = svgs(training_curves(rows(30, lambda step: 2.3 - step / 300), UNTOUCHED))
    assert len([t for t in labels(loss) if re.fullmatch(r"2\.\d+", t)]) >= 3


def test_close_scores_have_different_labels():
    """With four digits each would be 73.85."""
    scores = {step: {"dev_spearman": 73.846 + step / 1000} for step in range(4)}
    _, dev = svgs(training_curves(scores, ("untouched", 73.847)))
    ticks = [label for label in labels(dev) if label.startswith("73.")]
    assert len(ticks) > 3
    assert len(set(ticks)) == len(ticks)


def test_the_loss_of_a_single_step_is_a_point():
    def drawn(steps):
        loss, _ = svgs(training_curves(rows(steps), UNTOUCHED))
        return set(re.findall(r"opacity: ([\d.]+)", loss))

    assert (drawn(1), drawn(2)) == (set(), {"0"})


def test_the_plots_of_a_run_have_one_colour_and_hover_texts():
    page = training_curves(rows(6), UNTOUCHED)
    loss, dev = svgs(page)
    for svg in (loss, dev):
        assert "var(--blue" in svg
        assert "var(--orange" not in svg
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", page))
    assert all(colour == "none" or colour.startswith("var(--") for colour in colours), colours
    assert "<title>step 6: 71</title>" in dev
    assert "<title>step 6: 7</title>" in loss
    assert "untouched" in labels(dev)
    long, _ = svgs(training_curves(rows(HOVERED + 1), UNTOUCHED))
    assert "<title>" not in long, "a shape for each of many steps would swell the page"


@pytest.mark.parametrize(
    ("numbers", "scale"),
    [([1, 2, 12], "linear"), ([0.01, 3.0], "log"), ([0.0, 3.0], "linear")],
)
def test_an_axis_of_numbers(numbers, scale):
    axes = Figure().subplots()
    axes.plot(numbers, numbers)
    number_axis(axes.xaxis, numbers)
    count_axis(axes.yaxis)
    assert axes.get_xscale() == scale
    ticks = [*axes.get_yticks(), *(axes.get_xticks() if numbers[0] == 1 else ())]
    assert all(tick == int(tick) for tick in ticks)


def test_a_bar_has_its_score_and_interval():
    bars = {"a": (50.0, 48.0, 52.0), "b": (60.0, None, None)}
    shown = score_bars(bars, {"b": ORANGE}, "found first, %")
    assert shown.count("fill: var(--blue") == shown.count("fill: var(--orange") == 1
    assert "<title>a: 50.0, 95 % interval 48.0 to 52.0</title>" in shown
    assert "<title>b: 60.0</title>" in shown
    assert {"a", "b", "found first, %"} <= set(labels(shown))


def test_a_bar_leaves_two_lines_of_a_label_free():
    for name in ("word", "word " * 20):
        shown = score_bars({name: (50.0, None, None)}, {name: ORANGE}, "found first, %")
        (bar,) = re.findall(r'<path d="(M [^"]*z\s*)"[^>]*fill: var\(--orange', shown)
        ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", bar)]
        assert 6 < (max(ys) - min(ys)) / 2 < ABOVE_ROW, "the bar ends below its label"


def test_no_line_goes_through_a_label():
    def boxes(*labels):
        return rows_plot(lambda axes: axes.axvline(1.5), labels, "score").count("fill: var(--page")

    assert boxes("a", "b") == boxes("a") + 1


def test_dev_scores_are_linear_and_a_baseline_below_0_is_drawn():
    scores = {0: {"dev_spearman": 2.0}, 1: {"loss": 3.0}, 2: {"loss": 0.1, "dev_spearman": 60.0}}
    loss, dev = svgs(training_curves(scores, ("untouched", -5.0)))
    assert "0.2" in labels(loss)
    assert {"0", "15", "30"} <= set(labels(dev))
    dashed = re.findall(r'<path d="M ([\d.]+) ([\d.]+)[^"]*"[^>]*dasharray', dev)
    lowest = float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', dev)[1])
    assert any(0 < float(y) < lowest for _, y in dashed)


def test_two_lines_of_a_label_have_space():
    def height(label):
        svg = rows_plot(lambda axes: axes.plot([1, 2], [0, 1]), [label, "b"], "score")
        assert label.split()[0] in svg
        return float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[1])

    assert height("word " * 20) > height("word") + 20


@pytest.mark.filterwarnings("error")
def test_a_letter_that_the_font_lacks_is_no_warning():
    assert "日本" in labels(score_bars({"日本": (50.0, None, None)}, {}, "found first, %"))
