"""The reports of `cotbert evaluate`: an HTML page and a Markdown file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cotbert_core.saving.markdown import plain
from pipelines.evaluating.scoring import score_of
from pipelines.evaluating.tables import Model, Table, tables
from pipelines.reports import html_page, similarity_plot

TITLE = "Evaluation"
# Tasks with a scatter plot; CoT-BERT Figure 3 shows STS-B.
PLOTTED = ("STS-B", "pairs-test")


def evaluation_page(result: Mapping[str, Any], models: Sequence[Model]) -> str:
    """Return a page with sentences, tables, and gold against predicted similarity."""
    sections = [(table.title, _html(table)) for table in tables(result, models)]
    if result.get("verdicts"):  # empty if only tasks of MTEB are scored
        sentences = html_page.paragraphs(result["verdicts"])
        sections.insert(0, ("Is the difference significant?", sentences))
    if (task := _plotted(models[0])) is not None:
        sections.append((f"Gold against predicted similarity, {task}", _scatter(models, task)))
    return html_page.page(TITLE, _note(models), [*sections, ("Settings", _settings(models))])


def markdown(result: Mapping[str, Any], models: Sequence[Model]) -> str:
    """Return a Markdown text with sentences and tables."""
    lines = [f"# {TITLE}", "", plain(_note(models)), ""]
    for sentence in result.get("verdicts", ()):
        lines += [plain(sentence), ""]
    for table in tables(result, models):
        lines += [f"## {plain(table.title)}", "", *_rows(table), ""]
        lines += [plain(table.note), ""] if table.note else []
    return "\n".join(lines)


def _note(models: Sequence[Model]) -> str:
    labels = "; ".join(model.label for model in models)
    return f"{len(models)} {'models' if len(models) > 1 else 'model'}: {labels}."


def _rows(table: Table) -> list[str]:
    header, *rows = (f"| {' | '.join(map(plain, row))} |" for row in [table.header, *table.rows])
    return [header, f"| {' | '.join('---' for _ in table.header)} |", *rows]


def _html(table: Table) -> str:
    note = html_page.paragraphs([table.note] if table.note else [], "note")
    return html_page.table(table.header, table.rows, table.kind) + note


def _plotted(model: Model) -> str | None:
    """Return the task whose pairs the scatter plot shows."""
    predicted = model.scored.predicted
    return next((task for task in PLOTTED if task in predicted), next(iter(predicted), None))


def _scatter(models: Sequence[Model], task: str) -> str:
    panels = [
        (m.label, m.scored.predicted[task].cosine, score_of(m.scored.entries[task])) for m in models
    ]
    return similarity_plot.similarity_panels(models[0].scored.predicted[task].gold, panels)


def _settings(models: Sequence[Model]) -> str:
    """Return a table of readouts, settings and run ids."""
    rows = [
        (model.label, key, value)
        for model in models
        for key, value in model.result.items()
        if isinstance(value, (str, int)) and not isinstance(value, bool)
    ]
    rows += [(m.label, "sentences_per_second", m.result["sentences_per_second"]) for m in models]
    return html_page.table(("model", "setting", "value"), rows, "text")
