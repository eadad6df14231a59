"""Check the tasks of a SentEval folder against the published numbers of rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cotbert_core.errors import UserError
from cotbert_core.evaluation.sts import STS_TASKS, load_dev, missing_tasks
from cotbert_core.evaluation.transfer_data import TRANSFER_TASKS

# Scored pairs of the test sets (Conneau and Kiela 2018, tables 1 and 2; STS13 without SMT, which is
# licensed separately), and examples of all parts of the transfer tasks.
PAIRS = {
    "STS12": 3108,
    "STS13": 1500,
    "STS14": 3750,
    "STS15": 3000,
    "STS16": 1186,
    "STS-B": 1379,
    "SICK-R": 4927,
}
DEV_PAIRS = {"STS-B": 1500, "SICK-R": 500}
EXAMPLES = {
    "MR": 10_662,
    "CR": 3_775,
    "SUBJ": 10_000,
    "MPQA": 10_606,
    "SST2": 70_042,
    "TREC": 5_952,
    "MRPC": 5_801,
}
PRESENT, ABSENT = "as many rows as published", "missing"


def require_folder(folder: Path) -> None:
    """Raise UserError if the folder does not exist."""
    if not folder.is_dir():
        raise UserError(f"SentEval folder {str(folder)!r} does not exist: give an existing folder")


def task_place(task: str) -> str:
    """Return the path of a task in a SentEval folder."""
    if task in STS_TASKS:
        return STS_TASKS[task][0]
    return " and ".join(TRANSFER_TASKS[task].paths)


def check_folder(folder: Path) -> dict[str, str]:
    """Return the state of every task, in the order of the published tables: PRESENT, ABSENT, or a
    description of the error. UserError for a missing folder or one without tasks."""
    require_folder(folder)
    states = {name: _state_of(name, folder) for name in (*STS_TASKS, *TRANSFER_TASKS)}
    if set(states.values()) == {ABSENT}:
        raise UserError(
            f"{str(folder)!r} has none of SentEval's tasks: give the folder in which STS, SICK and "
            "MR are, or fetch one with `cotbert data fetch DIR`"
        )
    return states


def _state_of(task: str, folder: Path) -> str:
    try:
        return _sts_state(task, folder) if task in STS_TASKS else _transfer_state(task, folder)
    except UserError as error:
        return str(error)


def _sts_state(task: str, folder: Path) -> str:
    if missing_tasks(folder, [task]):
        return ABSENT
    test = sum(map(len, STS_TASKS[task][1](folder).values()))
    counts = [(test, PAIRS[task], "test pairs")]
    if task in DEV_PAIRS:
        counts.append((len(load_dev(folder, task)), DEV_PAIRS[task], "dev pairs"))
    return _state(counts)


def _transfer_state(name: str, folder: Path) -> str:
    task = TRANSFER_TASKS[name]
    if lacks := [path for path in task.paths if not (folder / path).is_file()]:
        return f"{', '.join(lacks)} is missing" if len(lacks) < len(task.paths) else ABSENT
    found = sum(map(len, task.load(folder).values()))
    return _state([(found, EXAMPLES[name], "examples")])


def _state(counts: Iterable[tuple[int, int, str]]) -> str:
    """Return the state of a task. counts: the number found, the one published, and of what."""
    wrong = (
        f"{n:,} {what} and {known:,} were published" for n, known, what in counts if n != known
    )
    return "; ".join(wrong) or PRESENT
