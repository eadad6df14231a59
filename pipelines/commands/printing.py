"""What commands print last, on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def print_texts(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns to the left; the last is a text of any length."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]))


def print_result(result: dict[str, Any]) -> None:
    print_texts(
        [(key, f"{v:,.4g}" if isinstance(v, float) else str(v)) for key, v in result.items()]
    )


def print_scores(result: dict[str, Any]) -> None:
    from pipelines.progress import table

    columns = (
        *("spearman", "mean", "wmean", "alignment", "uniformity", "pairs"),
        *("accuracy", "f1", "train", "test"),
    )
    tasks = {name: value for name, value in result.items() if isinstance(value, dict)}
    used = [c for c in columns if any(c in scores for scores in tasks.values())]
    rows = [(name, *(_cell(scores.get(c)) for c in used)) for name, scores in tasks.items()]
    for name, column in (("average", "spearman"), ("transfer_average", "accuracy")):
        if name in result:
            rows.append((name, *(_cell(result[name]) if c == column else "" for c in used)))
    print(table(rows, ("task", *used)))


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
