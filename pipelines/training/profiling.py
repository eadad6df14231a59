"""The worker side of `cotbert train --profile`: step times by section, and a trace of a few steps.

OUTPUT/profile gets steps.csv, with a row for each step and worker, and a trace of worker 0 for
chrome://tracing or https://ui.perfetto.dev. A run that continues from a checkpoint after the loss
of a worker restarts its profile.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from cotbert_core.errors import UserError
from cotbert_core.training.distributed import gather_objects, rank
from cotbert_core.training.flops import Work
from cotbert_core.training.step_timer import SECTIONS, Clock, clocked_sections

FOLDER, STEPS_FILE, TRACE_FILE = "profile", "steps.csv", "trace-rank0.json.gz"
# The first step fills caches; the tracer needs another warm-up step and slows the traced steps.
WARM_STEPS, TRACER_WARM_STEPS, TRACED_STEPS = 1, 1, 2
UNCOUNTED_STEPS = WARM_STEPS + TRACER_WARM_STEPS + TRACED_STEPS
COUNTED, TRACED, WARM = "counted", "traced", "warm-up"
REST = "rest"
COLUMNS = ("step", "worker", "kind", "seconds", *SECTIONS, REST)
Row = dict[str, Any]
Lap = Callable[[int, Work], None]


def check_steps(steps: int) -> None:
    """Raise UserError if the run has too few steps for any to be counted."""
    if steps <= UNCOUNTED_STEPS:
        raise UserError(
            f"the run has {steps} steps and --profile only counts steps after the first "
            f"{UNCOUNTED_STEPS}, for warm-up and trace: train for more steps, or leave it out"
        )


@contextmanager
def profiled(folder: Path | None, device: torch.device) -> Iterator[Lap]:
    """Yield a function to call on every worker after each step, with its number and the worker's
    work. The files are written if the block succeeds; without a folder nothing is recorded."""
    if folder is None:
        yield lambda step, work: None
        return
    rows: list[Row] = []
    if rank() == 0:
        folder.mkdir(exist_ok=True)
    with _tracer(folder, device) as tracer, clocked_sections(device) as clock:

        def lap(step: int, work: Work) -> None:
            rows.append(_row(clock, step, work, len(rows)))
            if tracer is not None:
                tracer.step()
                clock.skip()

        yield lap
    shares: list[list[Row]] = gather_objects(rows)
    if rank() == 0:
        _write_steps(folder / STEPS_FILE, [row for share in shares for row in share])


def _row(clock: Clock, step: int, work: Work, before: int) -> Row:
    """Return the row of a step. before: number of steps timed before it."""
    seconds, sections = clock.lap()
    found: Row = {name: sections.get(name, 0.0) for name in SECTIONS}
    rest = seconds - sum(found.values())
    if not found["bias rows"]:  # they run in the same batches as the other rows
        found["bias rows"] = found["forward"] * work.bias_share
        found["forward"] -= found["bias rows"]
    kind = WARM if before < WARM_STEPS else TRACED if before < UNCOUNTED_STEPS else COUNTED
    facts: Row = {"step": step, "worker": rank(), "kind": kind, "seconds": seconds}
    return {**facts, **found, REST: rest}


def _tracer(folder: Path, device: torch.device) -> Any:
    """Return torch's profiler for TRACED_STEPS steps on worker 0, and a null context on others."""
    if rank() != 0:
        return nullcontext()
    kinds = [ProfilerActivity.CPU]
    kinds += [ProfilerActivity.CUDA] if device.type == "cuda" else []
    return profile(
        activities=kinds,
        schedule=schedule(wait=WARM_STEPS, warmup=TRACER_WARM_STEPS, active=TRACED_STEPS, repeat=1),
        on_trace_ready=lambda tracer: _write_trace(tracer, folder / TRACE_FILE),
    )


def _write_trace(tracer: Any, path: Path) -> None:
    partial = path.with_name(f"partial-{path.name}")
    tracer.export_chrome_trace(str(partial))  # compressed, since the name ends in .gz
    partial.rename(path)


def _write_steps(path: Path, rows: Sequence[Row]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row["step"], row["worker"])):
            writer.writerow({k: f"{v:.6f}" if isinstance(v, float) else v for k, v in row.items()})
    partial.rename(path)


def read_steps(path: Path) -> list[Row]:
    """Return the rows of a steps file."""
    types = dict.fromkeys(COLUMNS, float) | {"step": int, "worker": int, "kind": str}
    with path.open(encoding="utf-8", newline="") as file:
        return [{k: types[k](v) for k, v in row.items()} for row in csv.DictReader(file)]
