"""docs/papers.md from the records of studies: no number in it is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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

INTRODUCTION = Path(__file__).parent / "introduction.md"


def page(records: Sequence[Record]) -> str:
    """Return the page; the papers' tables hold the first record's numbers."""
    first = records[0]
    parts = [
        INTRODUCTION.read_text("utf-8"),
        *(_paper(name, rows, first) for name, rows in read_tables().items()),
    ]
    parts.append("## What was run\n")
    for record in records:
        parts += [sections.about(record), section(record["pretraining"]), sections.methods(record)]
        parts += [
            sections.readouts(record),
            sections.other_scores(record),
            sections.geometry(record),
        ]
    parts += [sections.templates(first), sections.tokens(first)]
    return "\n".join(part for part in parts if part)


def _paper(name: str, rows: Sequence[Row], record: Record) -> str:
    gaps = adjusted([_gap(record, row) for row in rows])
    found = [(row, g, _outcome(record, row, g)) for row, g in zip(rows, gaps, strict=True)]
    cells = [
        (
            row.what,
            f"`{row.command}`" if row.command else "",
            row.paper,
            _ours(record, row),
            _order(g, outcome),
        )
        for row, g, outcome in found
    ]
    holds, otherwise, inconclusive = (
        sum(each == outcome for *_, each in found) for outcome in (HOLDS, OTHERWISE, INCONCLUSIVE)
    )
    table = sections.table(("table", "command", "paper", "ours", "order"), cells)
    return (
        f"## {name}\n\n{table}\nOrders of this paper that hold: {holds}; that do not: {otherwise}; "
        f"inconclusive: {inconclusive}.\n"
    )


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


def _ours(record: Record, row: Row) -> str:
    if not isinstance(row.ours, Ours):
        return row.ours
    found = scores(record, row.ours)
    return mean_spread(found) if found else NOT_RUN


def _order(found: Gap | None, outcome: str) -> str:
    if found is None or not outcome:
        return ""
    p = "" if found.p is None else f", p {found.p:.3f}"
    return f"{found.mean:+.2f}{p}: {outcome}"
