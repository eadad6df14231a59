"""The seven STS tasks in SentEval's file layout.

The score is the Spearman correlation x 100 of the vectors' cosines and the gold scores. STS12 to
STS16 have several subsets: their score is over all pairs of the year, and the mean and the
size-weighted mean of the subsets' scores are reported too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, unknown
from cotbert_core.evaluation.pairs import (
    Encode,
    Pairs,
    check_grades,
    cosines,
    encode_distinct,
    grade,
    sentence_groups,
    spearman,
)
from cotbert_core.evaluation.transfer_data import senteval_lines

_SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


@dataclass(frozen=True)
class Predicted:
    """The predicted similarities (`cosine`) and gold scores of N pairs, each (N,).

    number: the group (N,) of each pair, see sentence_groups.
    """

    cosine: np.ndarray
    gold: np.ndarray
    number: np.ndarray


Subsets = dict[str, Predicted]

_STSB = {"dev": "sts-dev.csv", "test": "sts-test.csv"}
_SICK = {"dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}


def _load_year(folder: Path, task: str) -> dict[str, Pairs]:
    """Return the subsets of one of STS12..16. A pair with an empty gold line is skipped."""
    home = folder / f"{task}-en-test"
    return {name: _load_subset(home, name) for name in _SUBSETS[task]}


def _load_subset(home: Path, name: str) -> Pairs:
    pair_file, gold_file = home / f"STS.input.{name}.txt", home / f"STS.gs.{name}.txt"
    lines, golds = senteval_lines(pair_file), senteval_lines(gold_file)
    if len(lines) != len(golds):
        raise UserError(
            f"{pair_file} has {len(lines)} lines and {gold_file.name} {len(golds)}: both must have "
            "the same number; download the task again"
        )
    numbered = enumerate(zip(lines, golds, strict=True), 1)
    scored = [(number, line.split("\t"), gold) for number, (line, gold) in numbered if gold.strip()]
    if any(len(fields) < 2 for _, fields, _ in scored):
        raise UserError(
            f"{pair_file} has a line without two tab-separated sentences: download the task again"
        )
    return _pairs([(number, f[0], f[1], gold) for number, f, gold in scored], gold_file)


def _load_stsb(folder: Path, split: str) -> dict[str, Pairs]:
    path = folder / "STSBenchmark" / _STSB[split]
    return {"all": _columns(path, senteval_lines(path), (5, 6, 4))}


def _load_sick(folder: Path, split: str) -> dict[str, Pairs]:
    path = folder / _SICK[split]
    header, *lines = senteval_lines(path)
    names = header.split("\t")
    wanted = ("sentence_A", "sentence_B", "relatedness_score")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise UserError(f"{path} has no column {missing[0]!r}: give SICK's annotated files")
    return {"all": _columns(path, lines, tuple(map(names.index, wanted)), first=2)}


def _columns(path: Path, lines: Sequence[str], columns: tuple[int, ...], first: int = 1) -> Pairs:
    """Return pairs from tab-separated lines. columns: numbers of left, right and gold. first:
    number of the first line in the file."""
    fields = [line.split("\t") for line in lines]
    if any(len(row) <= max(columns) for row in fields):
        raise UserError(f"{path} has a line with too few columns: download the task again")
    left, right, gold = columns
    numbered = enumerate(fields, first)
    return _pairs([(number, row[left], row[right], row[gold]) for number, row in numbered], path)


def _pairs(rows: Sequence[tuple[int, str, str, str]], path: Path) -> Pairs:
    """Return pairs with all white space in sentences folded to single blanks.

    rows: number of the line, left, right and gold of each pair. path: the file with the scores.
    """
    gold = np.array([grade(score, path, number) for number, _, _, score in rows])
    check_grades(gold, path)
    join = [(" ".join(left.split()), " ".join(right.split())) for _, left, right, _ in rows]
    return Pairs([left for left, _ in join], [right for _, right in join], gold)


# For each task its folder or test file inside the SentEval folder, and the loader of its subsets.
Loader = Callable[[Path], dict[str, Pairs]]
STS_TASKS: dict[str, tuple[str, Loader]] = {
    **{t: (f"STS/{t}-en-test", lambda d, t=t: _load_year(d / "STS", t)) for t in _SUBSETS},  # type: ignore[misc]
    "STS-B": (f"STS/STSBenchmark/{_STSB['test']}", lambda d: _load_stsb(d / "STS", "test")),
    "SICK-R": (f"SICK/{_SICK['test']}", lambda d: _load_sick(d / "SICK", "test")),
}


def load_dev(senteval_dir: str | Path, task: str = "STS-B") -> Pairs:
    """Return the dev set of STS-B or SICK-R, which the papers use to choose the best step."""
    if task == "SICK-R":
        return _load_sick(Path(senteval_dir) / "SICK", "dev")["all"]
    return _load_stsb(Path(senteval_dir) / "STS", "dev")["all"]


def task_name(name: str) -> str:
    """Return the name of a task in any spelling (STSB, sts-b); UserError if it is unknown."""
    plain = {t.replace("-", "").lower(): t for t in STS_TASKS}
    plain |= {"stsbenchmark": "STS-B", "sickrelatedness": "SICK-R"}
    key = name.replace("-", "").lower()
    if key not in plain:
        raise unknown("task", name, STS_TASKS)
    return plain[key]


def missing_tasks(senteval_dir: str | Path, tasks: Sequence[str]) -> list[str]:
    """Return the tasks whose folder or test file does not exist."""
    folder = Path(senteval_dir)
    return [t for t in tasks if not (folder / STS_TASKS[t][0]).exists()]


def predict_sts(
    encode: Encode, senteval_dir: str | Path, tasks: Sequence[str] = tuple(STS_TASKS)
) -> dict[str, Subsets]:
    """Return for each task the predicted and gold similarities of its subsets.

    The only subset of a task without subsets is `all`. Every distinct sentence of all tasks is
    encoded once. tasks: names, or a single one. Raises UserError for a missing task.
    """
    folder, tasks = Path(senteval_dir), [tasks] if isinstance(tasks, str) else tasks
    data = {task: STS_TASKS[task][1](folder) for task in map(task_name, tasks)}
    subsets = [pairs for task in data.values() for pairs in task.values()]
    sides = [side for pairs in subsets for side in (pairs.left, pairs.right)]
    vectors = iter(encode_distinct(encode, *sides))
    return {task: _predicted(subsets, vectors) for task, subsets in data.items()}


def evaluate_sts(
    encode: Encode, senteval_dir: str | Path, tasks: Sequence[str] = tuple(STS_TASKS)
) -> dict[str, dict[str, Any]]:
    """Return the scores of each task, as `score_subsets` does. The arguments are those of
    `predict_sts`, as are the errors."""
    predicted = predict_sts(encode, senteval_dir, tasks)
    return {task: score_subsets(subsets) for task, subsets in predicted.items()}


def _predicted(subsets: dict[str, Pairs], vectors: Iterator[np.ndarray]) -> Subsets:
    """Return the similarities of a task's pairs. vectors: of the left and right sides in turn."""
    groups = sentence_groups(list(subsets.values()))
    return {
        name: Predicted(cosines(next(vectors), next(vectors)), pairs.gold, group)
        for (name, pairs), group in zip(subsets.items(), groups, strict=True)
    }


def pooled(subsets: Subsets) -> Predicted:
    """Return all pairs of a task together, the papers' setting `all`."""
    parts = list(subsets.values())
    return Predicted(
        np.concatenate([part.cosine for part in parts]),
        np.concatenate([part.gold for part in parts]),
        np.concatenate([part.number for part in parts]),
    )


def score_subsets(subsets: Subsets) -> dict[str, Any]:
    """Return the scores of one task (x 100) and its number of pairs.

    The scores are spearman over all pairs, and mean and wmean over the subsets.
    """
    each = {name: spearman(part.cosine, part.gold) for name, part in subsets.items()}
    together = pooled(subsets)
    scores = list(each.values())
    return {
        "spearman": spearman(together.cosine, together.gold),
        "mean": float(np.mean(scores)),
        "wmean": float(np.average(scores, weights=[len(p.gold) for p in subsets.values()])),
        "pairs": len(together.gold),
        "subsets": each if len(each) > 1 else {},
    }
