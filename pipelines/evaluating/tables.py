"""Scored models, and the tables of their reports as text cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.evaluating.changed_queries import HEADER, changed_rows, changed_sentence
from pipelines.evaluating.published import (
    STS,
    STS_COLUMNS,
    TRANSFER,
    TRANSFER_COLUMNS,
    Published,
    beside,
)
from pipelines.evaluating.scoring import (
    AVERAGE,
    FOUND_FIRST,
    TRANSFER_AVERAGE,
    Scored,
    measure_of,
    score_of,
)
from pipelines.reports.values import UNDEFINED, p_value, score_text


@dataclass(frozen=True)
class Model:
    """A scored model.

    result: as in the JSON file. backbone: its name in the papers, None if it is not in them.
    method: name of the training method in the settings, None if unknown.
    """

    label: str
    result: dict[str, Any]
    scored: Scored
    backbone: str | None
    method: str | None


@dataclass(frozen=True)
class Table:
    """A table. rows: cells under `header`. note: a paragraph below the table. kind: "text" if its
    cells are sentences."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    kind: str = ""


def tables(result: Mapping[str, Any], models: Sequence[Model]) -> list[Table]:
    """Return all tables that have rows."""
    made = [
        _as_published("STS tasks", STS_COLUMNS, AVERAGE, STS, models, "Spearman x 100"),
        *_differences(result),
        *_changed_queries(result),
        _as_published(
            "Transfer tasks", TRANSFER_COLUMNS, TRANSFER_AVERAGE, TRANSFER, models, "Accuracy x 100"
        ),
        _others(models),
    ]
    return [table for table in made if table.rows]


def _as_published(
    title: str,
    columns: Sequence[str],
    average: str,
    published: Iterable[Published],
    models: Sequence[Model],
    measure: str,
) -> Table:
    """Return a table in the papers' format: models, their intervals, and the papers' rows."""
    header = (title, *columns, "Avg.")
    if not any(average in model.result for model in models):
        return Table(title, header, [])
    rows = [row for model in models for row in _model_rows(model, columns, average)]
    there = sum(c in models[0].result for c in columns)
    known = beside(published, {model.backbone for model in models})
    methods = {(model.backbone, model.method) for model in models if model.method}
    rows += [_published_row(row, methods) for row in known]
    return Table(title, header, rows, _note(measure, there, len(columns), models))


def _note(measure: str, there: int, of: int, models: Sequence[Model]) -> str:
    note = f"{measure}. Rows in brackets are published results; none of them was run here."
    if models[0].result.get("resamples"):
        note += (
            f" Intervals: 95 %, bootstrap with {models[0].result['resamples']:,} "
            "resamples of what was scored; they do not include the spread of training seeds."
        )
    if there < of:
        note += f" Our average is over the {there} scored tasks, the papers' over {of}."
    if any(model.backbone is None for model in models):
        note += (
            " An encoder here is not in the papers: the published rows are for other "
            "encoders, and are shown for the format, not for comparison."
        )
    return note


def _model_rows(model: Model, columns: Sequence[str], average: str) -> Iterator[tuple[str, ...]]:
    result = model.result
    entries = [result.get(column) for column in columns]
    scored = (*columns, average)
    yield (model.label, *(score_text(score_of(result[c])) if c in result else "" for c in scored))
    if f"{average}_low" in result:
        ends = [(e or {}).get(end) for e in entries for end in ("low", "high")]
        ends += [result[f"{average}_{end}"] for end in ("low", "high")]
        pairs = zip(ends[::2], ends[1::2], strict=True)
        yield ("95 % interval", *(_range(low, high) for low, high in pairs))


def _published_row(row: Published, methods: set[tuple[str | None, str]]) -> tuple[str, ...]:
    same = ", the same method" if (row.backbone, row.trained_by) in methods else ""
    name = f"[{row.method}, {row.backbone}, {row.kind}{same}; {row.source}]"
    return (name, *map(score_text, row.scores), score_text(row.average))


def _differences(result: Mapping[str, Any]) -> list[Table]:
    note = (
        "Both models are scored on the same resampled pairs. p: two-sided, not corrected for the "
        "number of rows and models."
    )
    return [
        Table(
            f"{label} against {result['against']}",
            ("task", "difference", "95 % interval", "p"),
            [difference_row(task, entry) for task, entry in entries.items()],
            note,
        )
        for label, entries in result.get("differences", {}).items()
    ]


def _changed_queries(result: Mapping[str, Any]) -> list[Table]:
    against = result.get("against")
    return [
        Table(
            f"Queries that {label} or {against} alone finds first",
            HEADER,
            changed_rows(changed),
            changed_sentence(changed, result["models"][label][FOUND_FIRST]["queries"]),
            "text",
        )
        for label, changed in result.get("changed_queries", {}).items()
    ]


def difference_row(task: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of a table of differences, for a terminal or a page."""
    gap, p = entry["difference"], entry["p"]
    return (
        task,
        UNDEFINED if gap is None else f"{gap:+.2f}",
        _range(entry["low"], entry["high"], "+"),
        "" if p is None else p_value(p),
    )


def _others(models: Sequence[Model]) -> Table:
    """Return the table of scores without published ones: own pairs, held-out documents, MTEB."""
    header = ("model", "task", "metric", "score x 100", "95 % interval")
    known = {*STS_COLUMNS, *TRANSFER_COLUMNS}
    rows = []
    for model in models:
        for name, entry in model.result.items():
            if isinstance(entry, Mapping) and name not in known:
                measure, ends = measure_of(entry), _range(entry.get("low"), entry.get("high"))
            elif name.endswith("_average") and name != TRANSFER_AVERAGE:  # of MTEB's tasks
                measure, ends = "main score", ""
            else:
                continue
            rows.append((model.label, name, measure, score_text(score_of(entry)), ends))
    return Table("Other tasks", header, rows)


def _range(low: float | None, high: float | None, sign: str = "") -> str:
    return "" if low is None or high is None else f"{low:{sign}.2f} to {high:{sign}.2f}"
