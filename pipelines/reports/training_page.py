"""The report of a training run."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from cotbert_core.settings import TrainSettings, flatten
from pipelines.reports import plots
from pipelines.reports.html_page import page, table
from pipelines.training.baseline import baseline_line, baseline_sentence
from pipelines.training.profile_table import notes, profile_table
from pipelines.training.profiling import Row


def settings_table(settings: TrainSettings, dev: str) -> str:
    """Return the settings as an HTML table. dev: name of the dev pairs."""
    shown = flatten(settings) | {"dev": dev}
    return table(("setting", "value"), list(shown.items()), "text")


def against_baseline(sentence: str) -> str:
    """Return a sentence of `baseline_sentence` as HTML; a warning is bold."""
    tag = "strong" if sentence.startswith("warning") else "span"
    return f"<p><{tag}>{html.escape(sentence)}</{tag}></p>"


def write_training_report(
    path: Path,
    result: Mapping[str, Any],
    rows: Mapping[int, Mapping[str, float]],
    settings: TrainSettings,
    profile: Sequence[Row] = (),
) -> None:
    """Write the report of one training run. profile: the steps' seconds by section, if any."""
    shown = [(key, f"{v:.4g}" if isinstance(v, float) else v) for key, v in result.items()]
    sections = [
        ("Result", against_baseline(baseline_sentence(result)) + table(("", ""), shown, "text")),
        ("Loss and dev score by step", plots.training_curves(rows, baseline_line(result))),
        *([("Where the time went", _profile(profile))] if profile else []),
        ("Settings", settings_table(settings, result["dev"])),
    ]
    title = f"{settings.method.name} on {settings.encoder}"
    write_text(path, page(title, "A training run of cotbert.", sections))


def _profile(rows: Sequence[Row]) -> str:
    items = "".join(f"<li>{html.escape(note)}</li>\n" for note in notes(rows))
    return f"{table(*profile_table(rows))}<ul>\n{items}</ul>"
