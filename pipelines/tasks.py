"""Which tasks of a SentEval folder are scored: STS tasks, transfer tasks, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, unknown
from cotbert_core.evaluation import STS_TASKS, evaluate_sts
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.evaluation.sts import missing_tasks, task_name
from cotbert_core.evaluation.transfer import (
    TRANSFER_TASKS,
    evaluate_transfer,
    missing_transfer_tasks,
    transfer_task_name,
)
from pipelines.progress import say

GROUPS = {"sts": tuple(STS_TASKS), "transfer": tuple(TRANSFER_TASKS)}


@dataclass(frozen=True)
class Tasks:
    """Names of tasks that are there, in a SentEval folder."""

    folder: Path
    sts: tuple[str, ...] = ()
    transfer: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """All distinct sentences that will be scored."""
        subsets = [pairs for t in self.sts for pairs in STS_TASKS[t][1](self.folder).values()]
        sides = [side for pairs in subsets for side in (pairs.left, pairs.right)]
        parts = [p for t in self.transfer for p in TRANSFER_TASKS[t].load(self.folder).values()]
        sides += [side for part in parts for side in part.sides]
        return list(dict.fromkeys(s for side in sides for s in side))

    def scores(self, encode: Encode) -> dict[str, Any]:
        """An entry for each task; average: Spearman over the STS tasks; transfer_average:
        accuracy over the transfer tasks (x 100)."""
        result: dict[str, Any] = {}
        if self.sts:
            result |= evaluate_sts(encode, self.folder, self.sts)
            result["average"] = float(np.mean([result[t]["spearman"] for t in self.sts]))
        if self.transfer:
            result |= evaluate_transfer(encode, self.folder, self.transfer)
            accuracies = [result[t]["accuracy"] for t in self.transfer]
            result["transfer_average"] = float(np.mean(accuracies))
        return result


def choose_tasks(folder: Path, asked: str, allow_missing: bool) -> Tasks:
    """The tasks asked for, by name or group, with commas; a missing one is an error unless it is
    allowed, and named either way."""
    if not folder.is_dir():
        raise UserError(f"SentEval folder {str(folder)!r} does not exist: give one")
    wanted = list(dict.fromkeys(name for item in asked.split(",") for name in _names(item)))
    sts = [t for t in wanted if t in STS_TASKS]
    transfer = [t for t in wanted if t in TRANSFER_TASKS]
    missing = [*missing_tasks(folder, sts), *missing_transfer_tasks(folder, transfer)]
    if missing and not allow_missing:
        raise UserError(
            f"{str(folder)!r} lacks {', '.join(missing)}: add {', '.join(map(_place, missing))}, "
            "choose others with --tasks, or skip them with --allow-missing"
        )
    if len(missing) == len(wanted):
        raise UserError(
            f"{str(folder)!r} has none of the tasks {', '.join(wanted)}: choose others with --tasks"
        )
    if missing:
        say(f"warning: skipped {', '.join(missing)}: not in {folder}")
    there = (tuple(t for t in tasks if t not in missing) for tasks in (sts, transfer))
    return Tasks(folder, *there)


def _names(item: str) -> tuple[str, ...]:
    """The tasks of a group, or the one that an item names however it is written."""
    if item in GROUPS:
        return GROUPS[item]
    for name_of in (task_name, transfer_task_name):
        try:
            return (name_of(item),)
        except UserError:
            continue
    raise unknown("task", item, [*GROUPS, *STS_TASKS, *TRANSFER_TASKS])


def _place(task: str) -> str:
    """Where a task is below the folder."""
    if task in STS_TASKS:
        return STS_TASKS[task][0]
    return " and ".join(TRANSFER_TASKS[task].paths)
