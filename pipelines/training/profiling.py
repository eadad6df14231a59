"""`cotbert train --profile`: torch's profiler around two steps of worker 0.

OUTPUT/profile gets a trace for https://ui.perfetto.dev or chrome://tracing, and torch's table of
the operators and of the sections that the code names by `record_function`. A run that continues
from a checkpoint after the loss of a worker restarts its profile.
"""

from __future__ import annotations

import re
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from cotbert_core.errors import UserError, counted
from cotbert_core.files import atomic_folder, write_text
from cotbert_core.training.distributed import rank

FOLDER, TABLE_FILE, TRACE_FILE = "profile", "table.md", "trace-rank0.json.gz"
# The first step fills caches, and the profiler itself warms up in another.
WARM_STEPS, PROFILER_WARM_STEPS, TRACED_STEPS = 1, 1, 2
LEAST_STEPS = WARM_STEPS + PROFILER_WARM_STEPS + TRACED_STEPS
# Names in torch's table: its header, its whole step, and the sections of a step.
SECTIONS = (
    *("Name", "ProfilerStep*", "data wait", "forward", "bias rows", "decoder", "loss", "backward"),
    *("gather", "optimizer", "dev check", "checkpoint"),
)


def check_steps(steps: int) -> None:
    """Raise UserError if the run has too few steps for a profile."""
    if steps < LEAST_STEPS:
        raise UserError(
            f"the run has {counted(steps, 'step')} and --profile traces two after two for warm-up: "
            f"train for at least {LEAST_STEPS} steps, or leave it out"
        )


def profiler(
    folder: Path | None, device: torch.device, done: int, total: int, eval_every: int
) -> AbstractContextManager[profile | None]:
    """Return torch's profiler, to be stepped after each step, or a null context for no profile.

    It traces the first step with a dev check that has enough steps before it, and the step before.
    folder: where worker 0 writes the files, or None. done: number of steps of earlier attempts.
    """
    checked = min(-(-(done + LEAST_STEPS) // eval_every) * eval_every, total)
    if folder is None or rank() != 0:
        return nullcontext()
    # Of an attempt whose worker was killed while it wrote.
    shutil.rmtree(folder.with_name(f"{folder.name}.partial"), ignore_errors=True)
    if checked < done + LEAST_STEPS:
        return nullcontext()
    kinds = [ProfilerActivity.CPU]
    kinds += [ProfilerActivity.CUDA] if device.type == "cuda" else []
    before = checked - done - TRACED_STEPS - PROFILER_WARM_STEPS
    return profile(
        activities=kinds,
        schedule=schedule(wait=before, warmup=PROFILER_WARM_STEPS, active=TRACED_STEPS, repeat=1),
        on_trace_ready=lambda traced: _write(traced, folder, checked),
    )


def _write(traced: profile, folder: Path, checked: int) -> None:
    """Write the files, completely or not at all."""
    shutil.rmtree(folder, ignore_errors=True)
    with atomic_folder(folder) as partial:
        traced.export_chrome_trace(str(partial / TRACE_FILE))  # compressed: its name ends in .gz
        table = traced.key_averages().table(sort_by="cpu_time_total", row_limit=-1)
        steps = f"Worker 0, steps {checked - 1} and {checked}; the second has a dev check.\n\n"
        write_text(partial / TABLE_FILE, f"{steps}```\n{table}```\n")


def read_sections(output: Path) -> str:
    """Return the rows of a run's table that are no operators."""
    path = output.expanduser() / FOLDER / TABLE_FILE
    if not path.is_file():
        return "no step was profiled: too few were left when the run continued\n"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if re.split("  +", line.strip())[0] in SECTIONS)
