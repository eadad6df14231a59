"""Choose the tasks of a SentEval folder to score: STS tasks, transfer tasks, or both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, unknown
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.evaluation.sts import STS_TASKS, missing_tasks, predict_sts, task_name
from cotbert_core.evaluation.transfer import load_transfer, score_transfer
from cotbert_core.evaluation.transfer_data import (
    TRANSFER_TASKS,
    missing_transfer_tasks,
    transfer_task_name,
)
from pipelines.evaluating.scoring import Scored, add_sts, add_transfer
from pipelines.evaluating.senteval_folder import require_folder, task_place
from pipelines.runtime.progress import say

GROUPS = {"sts": tuple(STS_TASKS), "transfer": tuple(TRANSFER_TASKS)}


@dataclass(frozen=True)
class Tasks:
    """The names of existing tasks in a SentEval folder."""

    folder: Path
    sts: tuple[str, ...] = ()
    transfer: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """Return all distinct sentences of the tasks."""
        subsets = [pairs for t in self.sts for pairs in STS_TASKS[t][1](self.folder).values()]
        sides = [side for pairs in subsets for side in (pairs.left, pairs.right)]
        parts = [p for t in self.transfer for p in TRANSFER_TASKS[t].load(self.folder).values()]
        sides += [side for part in parts for side in part.sides]
        return list(dict.fromkeys(s for side in sides for s in side))

    def scores(self, encode: Encode) -> dict[str, Any]:
        """Return an entry for each task, and the averages (x 100).

        average: Spearman over the STS tasks. transfer_average: accuracy over the transfer tasks.
        """
        scored = Scored()
        self.score_into(scored, encode)
        return scored.entries

    def score_into(self, scored: Scored, encode: Encode, resamples: int = 0) -> None:
        """Add the entries of `scores`, with intervals if resamples > 0.

        Raises UserError for a faulty file of any task before a sentence is encoded.
        """
        read = load_transfer(self.folder, self.transfer)
        if self.sts:
            add_sts(scored, predict_sts(encode, self.folder, self.sts), resamples)
        if self.transfer:
            add_transfer(scored, score_transfer(encode, read), resamples)


def choose_tasks(folder: Path, requested: str, allow_missing: bool) -> Tasks:
    """Return the requested tasks of a folder.

    requested: comma-separated names or groups. A missing task raises UserError, or shows a warning
    with allow_missing.
    """
    require_folder(folder)
    wanted = list(dict.fromkeys(name for item in requested.split(",") for name in _names(item)))
    sts = [t for t in wanted if t in STS_TASKS]
    transfer = [t for t in wanted if t in TRANSFER_TASKS]
    missing = [*missing_tasks(folder, sts), *missing_transfer_tasks(folder, transfer)]
    if missing and not allow_missing:
        places = ", ".join(map(task_place, missing))
        raise UserError(
            f"{str(folder)!r} lacks {', '.join(missing)}: add {places}, "
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
    """Return the tasks of a group, or the task with this name in any spelling."""
    item = item.strip()
    if item in GROUPS:
        return GROUPS[item]
    for name_of in (task_name, transfer_task_name):
        try:
            return (name_of(item),)
        except UserError:
            continue
    raise unknown("task", item, [*GROUPS, *STS_TASKS, *TRANSFER_TASKS])
