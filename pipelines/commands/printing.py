"""Print the results of commands on standard output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.recording.metric_names import SUBSETS
from pipelines.reports.values import UNDEFINED, as_typed, rounded
from pipelines.runtime.progress import is_verbose, print_output, table

# Keys of result.json that the terminal shows only with --verbose.
INTERNAL = (
    *("mfu", "tokens_per_second", "rows_of_this_run"),
    *("mlflow_run_id", "mlflow_parent_run_id"),
)


def print_texts(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in left-aligned columns; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print_output("  ".join([*cells, row[-1]]))


def print_result(result: dict[str, Any]) -> None:
    """Print each key with its value, as users would type it; none of what has no value."""
    shown = {key: value for key, value in result.items() if value is not None}
    print_texts(
        [(k, rounded(v) if isinstance(v, float) else as_typed(v)) for k, v in shown.items()]
    )


def print_facts(result: Mapping[str, Any]) -> None:
    """Print a result, without the keys of INTERNAL unless --verbose is given."""
    print_result({k: v for k, v in result.items() if is_verbose() or k not in INTERNAL})


def print_scores(result: dict[str, Any]) -> None:
    from pipelines.evaluating.scoring import SCORES

    tasks = {name: value for name, value in result.items() if isinstance(value, dict)}
    columns = {  # without the lists: the chosen regularisations of a transfer task
        key: None
        for scores in tasks.values()
        for key, value in scores.items()
        if key != SUBSETS and not isinstance(value, list)
    }
    used = sorted(columns, key=lambda column: column not in SCORES)  # else in their order

    def cells(scores: Mapping[str, Any]) -> list[str]:
        undefined = {key: math.nan for key in SCORES if scores.get(key, 0) is None}
        return [_cell({**scores, **undefined}.get(column)) for column in used]

    rows = [(name, *cells(scores)) for name, scores in tasks.items()]
    columns_of = {"average": "spearman", "transfer_average": "accuracy"}
    for name in (name for name in result if name.endswith("average")):
        own = {columns_of.get(name, "main_score"): result[name]}
        own |= {end: result.get(f"{name}_{end}") for end in ("low", "high")}
        rows.append((name, *cells(own)))
    print_output(table(rows, ("task", *used)))
    if some := [name for name, *shown in rows if UNDEFINED in shown]:
        print_output(f"\nThe score of {', '.join(some)} is undefined: all cosines are equal.")


def print_differences(result: dict[str, Any]) -> None:
    """Print a table of scores, then the differences of each further model to the first."""
    from pipelines.evaluating.scoring import score_of
    from pipelines.evaluating.tables import difference_row

    models = result["models"]
    tasks = [t for t, e in next(iter(models.values())).items() if isinstance(e, dict)]
    tasks += [t for t in next(iter(models.values())) if t.endswith("average")]
    print_texts([(str(number), label) for number, label in enumerate(models, 1)])
    rows = [(t, *(_cell(score_of(m[t])) for m in models.values())) for t in tasks]
    print_output("\n" + table(rows, ("task", *(f"model {n}" for n, _ in enumerate(models, 1)))))
    for number, entries in enumerate(result["differences"].values(), 2):
        # Tasks of MTEB alone give no results per example to resample.
        if all(entry["difference"] is None for entry in entries.values()):
            continue
        header = ("task", f"model {number} - model 1", "95 % interval", "p")
        print_output("\n" + table([difference_row(t, e) for t, e in entries.items()], header))
    print_output()
    for verdict in result["verdicts"]:
        print_output(verdict)


def _cell(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if math.isnan(value):
        return UNDEFINED
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
