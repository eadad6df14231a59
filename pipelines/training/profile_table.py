"""The tables of a profile: seconds of a step by section, and the slowest worker."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from cotbert_core.files import write_text
from cotbert_core.training.step_timer import SECTIONS
from pipelines.training.profiling import COUNTED, FOLDER, REST, UNCOUNTED_STEPS, Row

TABLE_FILE = "table.md"
WHOLE = "whole step"
NOTES = (
    "A section's time excludes other sections. The share is of the time of all counted steps; the "
    "median is over the steps that have the section.",
    "bias rows: their share of the forward pass by tokens, since they run in the same batches as "
    "the other rows; timed separately with method.freeze_bias.",
    "gather: exchange with the other workers and waiting for them; for gradients, from the end of "
    "the worker's own backward pass.",
)
Line = tuple[str, ...]


def profile_table(rows: Sequence[Row]) -> tuple[Line, list[Line]]:
    """Return the header and a line per section: median ms, share and steps of worker 0, and with
    several workers the minimum and maximum of their medians. There are no lines without steps."""
    counted = [row for row in rows if row["kind"] == COUNTED]
    workers = sorted({row["worker"] for row in counted})
    by_worker = [[row for row in counted if row["worker"] == w] for w in workers]
    header: Line = ("section", "median ms", "share", "steps")
    header += ("least worker", "most worker") if len(workers) > 1 else ()
    names = {name: name for name in (*SECTIONS, REST)} | {WHOLE: "seconds"}
    lines = [_line(name, column, by_worker) for name, column in names.items() if by_worker]
    return header, [line for line in lines if line is not None]


def _line(name: str, column: str, by_worker: Sequence[Sequence[Row]]) -> Line | None:
    """Return the line of a section; None if no step of any worker has it."""
    there = [[row[column] for row in rows if row[column] > 0] for rows in by_worker]
    if not any(there):
        return None
    medians = [statistics.median(values) if values else 0.0 for values in there]
    share = sum(there[0]) / sum(row["seconds"] for row in by_worker[0])
    own = (name, _ms(medians[0]), f"{share:.1%}", str(len(there[0])))
    return own + ((_ms(min(medians)), _ms(max(medians))) if len(medians) > 1 else ())


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


def waiting(rows: Sequence[Row]) -> str | None:
    """Return a sentence on how long workers wait for the slowest one; None with one worker.

    The worker that spends least time in the gathers of a step came last; what the others spend
    beyond that is waiting.
    """
    steps: dict[int, dict[int, float]] = {}
    for row in rows:
        if row["kind"] == COUNTED:
            steps.setdefault(row["step"], {})[row["worker"]] = row["gather"]
    workers = sorted({worker for gathers in steps.values() for worker in gathers})
    if len(workers) < 2:
        return None
    means = {
        worker: statistics.fmean(
            gathers[worker] - min(gathers.values()) for gathers in steps.values()
        )
        for worker in workers
    }
    slow, early = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    return (
        f"In gather, waiting for a slower worker takes {_ms(means[slow])} ms per step on worker "
        f"{slow}, the slowest, and {_ms(means[early])} ms on worker {early}."
    )


def notes(rows: Sequence[Row]) -> list[str]:
    """Return the notes below the table."""
    steps = len({row["step"] for row in rows if row["kind"] == COUNTED})
    counted = (
        f"Worker 0, {steps} steps: the first {UNCOUNTED_STEPS} warmed up or were traced, which "
        "makes them slower."
        if steps
        else "No step was counted: the run continued from a checkpoint with too few steps left."
    )
    gathers = waiting(rows)
    return [counted, *NOTES, *([gathers] if gathers else [])]


def read_table(output: Path) -> str:
    """Return the profile table in a run's output folder."""
    return (output.expanduser() / FOLDER / TABLE_FILE).read_text(encoding="utf-8")


def write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Write table and notes as Markdown that is also readable in a terminal."""
    header, lines = profile_table(rows)
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]

    def row(cells: Line) -> str:
        first = cells[0].ljust(widths[0])
        others = (c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))
        return f"| {' | '.join((first, *others))} |"

    rule = "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])])
    table = "\n".join([row(header), f"|{rule}|", *map(row, lines)])
    text = table + "\n\n" + "\n".join(f"- {note}" for note in notes(rows)) + "\n"
    write_text(folder / TABLE_FILE, text)
