"""docs/papers.md from the records of studies: no number in it is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import markdown_table
from benchmarks.study import sections
from benchmarks.study.language_model import section
from benchmarks.study.sections import NOT_RUN, Record
from benchmarks.study.statistics import (
    HOLDS,
    INCONCLUSIVE,
    OTHERWISE,
    Gap,
    adjusted,
    gap,
    mean_spread,
    outcome,
    scores,
)
from benchmarks.study.tables import Ours, Row, read_tables
from pipelines.reports.values import p_value

INTRODUCTION = Path(__file__).parent / "introduction.md"


def page(records: Sequence[Record]) -> str:
    """Return the page; the papers' tables have two columns for each record."""
    parts = [
        INTRODUCTION.read_text("utf-8"),
        *(_paper(name, rows, records) for name, rows in read_tables().items()),
    ]
    parts.append("## What was run\n")
    for record in records:
        parts += [sections.about(record), section(record["pretraining"]), sections.methods(record)]
        parts += [
            sections.readouts(record),
            sections.other_scores(record),
            sections.geometry(record),
        ]
    parts += [sections.templates(records[0]), sections.tokens(records[0])]
    return "\n".join(part for part in parts if part)


def _paper(name: str, rows: Sequence[Row], records: Sequence[Record]) -> str:
    header, counts = ["table", "command", "paper"], []
    cells = [[row.what, f"`{row.command}`" if row.command else "", row.paper] for row in rows]
    for record in records:
        encoder = record["about"]["encoder"]
        header += [f"ours, {encoder}", "order"]
        gaps = adjusted([_gap(record, row) for row in rows])
        outcomes = [_outcome(record, row, g) for row, g in zip(rows, gaps, strict=True)]
        for line, row, g, each in zip(cells, rows, gaps, outcomes, strict=True):
            line += [_ours(record, row, first=record is records[0]), _order(g, each)]
        held, others, neither = (outcomes.count(one) for one in (HOLDS, OTHERWISE, INCONCLUSIVE))
        counts.append(f"{held} hold on {encoder}, {others} do not, {neither} are inconclusive")
    return f"## {name}\n\n{markdown_table(header, cells)}\nOf the orders, {'; '.join(counts)}.\n"


def _gap(record: Record, row: Row) -> Gap | None:
    if row.against is None or not isinstance(row.ours, Ours):
        return None
    return gap(record, row.ours, row.against)


def _outcome(record: Record, row: Row, found: Gap | None) -> str:
    if row.against is None:
        return ""
    rows = (row for rows in read_tables().values() for row in rows)
    published = next((r.published for r in rows if r.ours == row.against), None)
    return "" if published is None else outcome(record, row, found, published)


def _ours(record: Record, row: Row, *, first: bool) -> str:
    """Return our number; a text, and what was not run, stand in the first record's column alone."""
    found = scores(record, row.ours) if isinstance(row.ours, Ours) else []
    if found:
        return mean_spread(found)
    if not first:
        return ""
    return row.ours if isinstance(row.ours, str) else NOT_RUN


def _order(found: Gap | None, outcome: str) -> str:
    if found is None or not outcome:
        return ""
    p = "" if found.p is None else f", p {p_value(found.p)}"
    return f"{found.mean:+.2f}{p}: {outcome}"
