"""The seven STS tasks in SentEval's layout.

Spearman of the cosine of raw vectors against the gold score, x 100. STS12 to STS16 are several
subsets: one Spearman over all pairs of the year, with the mean and the size-weighted mean of
the subsets' Spearman beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, unknown
from cotbert_core.evaluation.pairs import Encode, Pairs, cosines, encode_distinct, spearman

_SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}


@dataclass(frozen=True)
class Predicted:
    """cosine, gold: (N,) similarities of N pairs, predicted and given."""

    cosine: np.ndarray
    gold: np.ndarray


Subsets = dict[str, Predicted]

_STSB = {"dev": "sts-dev.csv", "test": "sts-test.csv"}
_SICK = {"dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}


def _load_year(folder: Path, task: str) -> dict[str, Pairs]:
    """Each subset of STS12..16. A pair whose gold line is empty has no score and is skipped."""
    home = folder / f"{task}-en-test"
    return {name: _load_subset(home, name) for name in _SUBSETS[task]}


def _load_subset(home: Path, name: str) -> Pairs:
    pair_file, gold_file = home / f"STS.input.{name}.txt", home / f"STS.gs.{name}.txt"
    lines, golds = _lines(pair_file), _lines(gold_file)
    if len(lines) != len(golds):
        raise UserError(
            f"{pair_file} has {len(lines)} lines and {gold_file.name} {len(golds)}: they must be "
            "equal; download the task again"
        )
    scored = [(line.split("\t"), gold) for line, gold in zip(lines, golds, strict=True) if gold]
    if any(len(fields) < 2 for fields, _ in scored):
        raise UserError(f"{pair_file} has a line without two tab-separated sentences: mend it")
    return _pairs([(f[0], f[1], gold) for f, gold in scored], pair_file)


def _load_stsb(folder: Path, split: str) -> dict[str, Pairs]:
    path = folder / "STSBenchmark" / _STSB[split]
    fields = [line.split("\t") for line in _lines(path)]
    return {"all": _pairs([(f[5], f[6], f[4]) for f in fields if len(f) > 6], path)}


def _load_sick(folder: Path, split: str) -> dict[str, Pairs]:
    path = folder / _SICK[split]
    header, *fields = [line.split("\t") for line in _lines(path)]
    wanted = ("sentence_A", "sentence_B", "relatedness_score")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise UserError(f"{path} has no column {missing[0]!r}: give SICK's annotated files")
    left, right, gold = (header.index(name) for name in wanted)
    return {"all": _pairs([(f[left], f[right], f[gold]) for f in fields if len(f) > gold], path)}


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"{str(path)!r} does not exist: give a SentEval folder that has it")
    text = path.read_text(encoding="utf-8-sig")
    return [line.strip("\r") for line in text.removesuffix("\n").split("\n")]


def _pairs(rows: Iterable[tuple[str, str, str]], path: Path) -> Pairs:
    """Sentences split on white space and joined again with single blanks."""
    rows = list(rows)
    try:
        gold = np.array([float(score) for _, _, score in rows])
    except ValueError as error:
        raise UserError(f"{path}: {error}: a score must be a number") from None
    join = [(" ".join(left.split()), " ".join(right.split())) for left, right, _ in rows]
    return Pairs([left for left, _ in join], [right for _, right in join], gold)


# Task -> (folder below the SentEval folder, loader of its subsets).
Loader = Callable[[Path], dict[str, Pairs]]
STS_TASKS: dict[str, tuple[str, Loader]] = {
    **{t: (f"STS/{t}-en-test", lambda d, t=t: _load_year(d / "STS", t)) for t in _SUBSETS},  # type: ignore[misc]
    "STS-B": ("STS/STSBenchmark", lambda d: _load_stsb(d / "STS", "test")),
    "SICK-R": ("SICK", lambda d: _load_sick(d / "SICK", "test")),
}


def load_dev(senteval_dir: str | Path, task: str = "STS-B") -> Pairs:
    """The dev file of STS-B or SICK-R, by which the papers choose the best step."""
    if task == "SICK-R":
        return _load_sick(Path(senteval_dir) / "SICK", "dev")["all"]
    return _load_stsb(Path(senteval_dir) / "STS", "dev")["all"]


def task_name(name: str) -> str:
    """A task's name however it is written (STSB, sts-b); UserError for one that is not known."""
    plain = {t.replace("-", "").lower(): t for t in STS_TASKS}
    plain |= {"stsbenchmark": "STS-B", "sickrelatedness": "SICK-R"}
    key = name.replace("-", "").lower()
    if key not in plain:
        raise unknown("task", name, STS_TASKS)
    return plain[key]


def missing_tasks(senteval_dir: str | Path, tasks: Sequence[str]) -> list[str]:
    """Those of `tasks` whose folder is not there."""
    folder = Path(senteval_dir)
    return [t for t in tasks if not (folder / STS_TASKS[t][0]).is_dir()]


def predict_sts(
    encode: Encode, senteval_dir: str | Path, tasks: Sequence[str] = tuple(STS_TASKS)
) -> dict[str, Subsets]:
    """For each task its subsets' predicted and gold similarities, `all` where there is one.

    Every distinct sentence of all tasks is encoded once. Raises UserError for a missing task.
    """
    folder = Path(senteval_dir)
    data = {task: STS_TASKS[task][1](folder) for task in map(task_name, tasks)}
    subsets = [pairs for task in data.values() for pairs in task.values()]
    sides = [side for pairs in subsets for side in (pairs.left, pairs.right)]
    vectors = iter(encode_distinct(encode, *sides))
    return {
        task: {n: Predicted(cosines(next(vectors), next(vectors)), p.gold) for n, p in s.items()}
        for task, s in data.items()
    }


def evaluate_sts(
    encode: Encode, senteval_dir: str | Path, tasks: Sequence[str] = tuple(STS_TASKS)
) -> dict[str, dict[str, Any]]:
    """For each task: spearman over all pairs, mean and wmean over its subsets (x 100), pairs.

    Every distinct sentence of all tasks is encoded once. Raises UserError for a missing task.
    """
    predicted = predict_sts(encode, senteval_dir, tasks)
    return {task: score_subsets(subsets) for task, subsets in predicted.items()}


def pooled(subsets: Subsets) -> Predicted:
    """All pairs of a task: what the papers call the setting `all`."""
    parts = list(subsets.values())
    return Predicted(
        np.concatenate([part.cosine for part in parts]),
        np.concatenate([part.gold for part in parts]),
    )


def score_subsets(subsets: Subsets) -> dict[str, Any]:
    """The entry of one task in the result of `evaluate_sts`."""
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
