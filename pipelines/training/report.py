"""The report of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from cotbert_core.settings import TrainSettings, flatten
from pipelines.recording.dev_metric import metric_in
from pipelines.recording.metric_names import LOSS
from pipelines.reports.colours import BLUE, INK
from pipelines.reports.html_page import escaped, page, paragraphs, plots, table
from pipelines.reports.plots import HOVERED, count_axis, number_axis, plot, points
from pipelines.reports.values import rounded
from pipelines.training.baseline_sentence import baseline_line, baseline_sentence

LOSS_NOTE = (
    "The loss depends on the method, its temperature and the batch size, so it shows the course of "
    "this run only: compare runs by their dev scores."
)


def against_baseline(sentence: str) -> str:
    """Return a sentence of `baseline_sentence` as HTML; a warning is bold."""
    tag = "strong" if sentence.startswith("warning") else "span"
    return f"<p><{tag}>{escaped(sentence)}</{tag}></p>"


def write_training_report(
    path: Path,
    result: Mapping[str, Any],
    rows: Mapping[int, Mapping[str, float]],
    settings: TrainSettings,
) -> None:
    """Write the report of one training run."""
    known = {key: value for key, value in result.items() if value is not None}
    shown = [(key, rounded(v) if isinstance(v, float) else v) for key, v in known.items()]
    curves = training_curves(rows, baseline_line(result)) + paragraphs([LOSS_NOTE], "note")
    sections = [
        ("Result", against_baseline(baseline_sentence(result)) + table(("", ""), shown, "text")),
        ("Loss and dev score by step", curves),
    ]
    values = flatten(settings) | {"dev": result["dev"]}
    sections.append(("Settings", table(("setting", "value"), list(values.items()), "text")))
    title = f"{settings.method.name} on {settings.encoder}"
    write_text(path, page(title, "A training run of cotbert.", sections))


def training_curves(rows: Mapping[int, Mapping[str, float]], baseline: tuple[str, float]) -> str:
    """Return plots of loss and dev score by step, in one colour since they are of one run.

    baseline: label and height of a horizontal line.
    """

    def dev(axes: Any) -> None:
        _line(axes, rows, metric.name, metric.label, {"marker": "o", "ms": 5})
        # Linear, on which a baseline below 0 is drawn, too.
        axes.set_yscale("linear")
        number_axis(axes.yaxis, [0.5])
        axes.axhline(baseline[1], color=INK, ls="--", lw=1.2, label=baseline[0])
        axes.legend(loc="best", frameon=False, fontsize=9)

    metric = metric_in(name for row in rows.values() for name in row)
    only_one = sum(LOSS in row for row in rows.values()) == 1  # which a line does not show
    how = {"marker": "o", "ms": 5, "alpha": float(only_one)}
    return plots([plot(lambda axes: _line(axes, rows, LOSS, "loss", how)), plot(dev)])


def _line(
    axes: Any, rows: Mapping[int, Mapping[str, float]], key: str, label: str, how: Mapping[str, Any]
) -> None:
    steps = [step for step in sorted(rows) if key in rows[step]]
    values = [rows[step][key] for step in steps]
    axes.plot(steps, values, color=BLUE, lw=1.8)
    if len(steps) <= HOVERED:
        texts = [f"step {s:,}: {rounded(v)}" for s, v in zip(steps, values, strict=True)]
        points(axes, steps, values, texts, color=BLUE, **how)
    if values:
        number_axis(axes.yaxis, values)
    count_axis(axes.xaxis)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
