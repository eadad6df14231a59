"""SentEval's seven transfer tasks (PromptBERT Table 15).

How well a plain classifier reads the class of a sentence from its frozen vector. Accuracy x 100.

The protocol is that of SentEval's validation.py with its logistic regression: the same splits,
seed and grids, nothing left out. MR, CR, SUBJ and MPQA have no test part: 10 folds, each scored
by a classifier of the other nine, whose regularisation is chosen by 10 folds inside those nine.
TREC and MRPC choose by 10 folds of the training part, SST2 by its dev part.

One thing differs: SentEval left the solving to scikit-learn's liblinear (one class against the
rest, the intercept penalised), and here it is `logistic.fit` (softmax, the intercept free). The
papers' tables come from SentEval's other classifier, a torch model without a hidden layer that
is trained by Adam until its dev accuracy no longer rises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.logistic import LogisticModel, design, fit
from cotbert_core.evaluation.pairs import Encode, encode_distinct
from cotbert_core.evaluation.transfer_data import (
    TRANSFER_TASKS,
    Part,
    missing_transfer_tasks,
    transfer_task_name,
)

__all__ = ["TRANSFER_TASKS", "evaluate_transfer", "missing_transfer_tasks", "transfer_task_name"]

FOLDS = 10
SENTEVAL_SEED = 1111
# Inverse strengths of the L2 penalty, scikit-learn's C: validation.py has these two ranges.
GRID = tuple(2.0**t for t in range(-2, 4))
TRAIN_TEST_GRID = tuple(2.0**t for t in range(-1, 6))

# Rows from logistic.design (N, D + 1), labels (N,).
Block = tuple[np.ndarray, np.ndarray]


@dataclass
class Outcome:
    """A value for each time a regularisation was chosen and a test part scored (x 100).

    unconverged: how many of all classifiers were stopped before they had converged. right: of
    each test part whether an example was told its class; the order is that of the parts.
    """

    accuracy: list[float] = field(default_factory=list)
    f1: list[float] = field(default_factory=list)
    dev_accuracy: list[float] = field(default_factory=list)
    regularisation: list[float] = field(default_factory=list)
    unconverged: int = 0
    right: list[np.ndarray] = field(default_factory=list)

    def fit(self, block: Block, regularisation: float) -> LogisticModel:
        model = fit(*block, regularisation)
        self.unconverged += not model.converged
        return model

    def choose(self, splits: Iterable[tuple[Block, Block]], grid: Sequence[float]) -> float:
        """The C of `grid` with the best mean accuracy over (train, dev) splits.

        Of equals, after SentEval's rounding to two decimals, the strongest regularisation.
        """
        scores = [[self.fit(train, c).accuracy(*dev) for c in grid] for train, dev in splits]
        means = np.mean(scores, axis=0).round(2)
        best = int(means.argmax())
        self.regularisation.append(grid[best])
        self.dev_accuracy.append(float(means[best]))
        return grid[best]

    def test(self, train: Block, test: Block, regularisation: float) -> None:
        """Scores `test` with a classifier of all of `train`."""
        rows, labels = test
        predicted = self.fit(train, regularisation).predict(rows)
        self.right.append(predicted == labels)
        self.accuracy.append(100 * float(self.right[-1].mean()))
        self.f1.append(100 * f1(predicted, labels))


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1; 0 where it is neither there nor found.

    predicted, labels: (N,).
    """
    both = np.sum((predicted == 1) & (labels == 1))
    return float(2 * both / max(1, np.sum(predicted == 1) + np.sum(labels == 1)))


def folds(block: Block, seed: int) -> Iterator[tuple[Block, Block]]:
    """The 10 (nine tenths, one tenth) splits of a block, classes in equal shares in each."""
    from sklearn.model_selection import StratifiedKFold

    rows, labels = block
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for train, test in splitter.split(rows, labels):
        yield (rows[train], labels[train]), (rows[test], labels[test])


def _nested(parts: dict[str, Block], seed: int, outcome: Outcome) -> None:
    """Folds inside folds: SentEval's InnerKFoldClassifier."""
    for train, test in folds(parts["train"], seed):
        outcome.test(train, test, outcome.choose(folds(train, seed), GRID))


def _train_test(parts: dict[str, Block], seed: int, outcome: Outcome) -> None:
    """Folds of the training part, then the test part: SentEval's KFoldClassifier."""
    chosen = outcome.choose(folds(parts["train"], seed), TRAIN_TEST_GRID)
    outcome.test(parts["train"], parts["test"], chosen)


def _train_dev_test(parts: dict[str, Block], seed: int, outcome: Outcome) -> None:
    """Three given parts: SentEval's SplitClassifier. Nothing is drawn."""
    chosen = outcome.choose([(parts["train"], parts["dev"])], GRID)
    outcome.test(parts["train"], parts["test"], chosen)


PROTOCOLS: dict[str, Callable[[dict[str, Block], int, Outcome], None]] = {
    "nested": _nested,
    "train-test": _train_test,
    "train-dev-test": _train_dev_test,
}


@dataclass(frozen=True)
class Transferred:
    """scores: as `evaluate_transfer` gives them. right: (N,) whether each test example was told
    its class; with equal labels and seed the examples are the same ones in the same order."""

    scores: dict[str, Any]
    right: np.ndarray


def evaluate_transfer(
    encode: Encode,
    senteval_dir: str | Path,
    tasks: Sequence[str] = tuple(TRANSFER_TASKS),
    seed: int = SENTEVAL_SEED,
) -> dict[str, dict[str, Any]]:
    """For each task: accuracy, dev_accuracy (x 100), train, test (examples), regularisation.

    MRPC has f1 (x 100) too. regularisation lists the chosen C, one for each outer fold; train
    and test are both the whole task where there are folds alone. unconverged counts the
    classifiers that were stopped at 1,000 steps. seed: of the folds. Every distinct sentence of
    all tasks is encoded once; one core is used. Raises UserError for an unknown or missing task,
    a line without a label or a class too small for the folds, all before anything is encoded,
    and for vectors that are not finite.
    """
    done = transfer(encode, senteval_dir, tasks, seed)
    return {task: transferred.scores for task, transferred in done.items()}


def transfer(
    encode: Encode,
    senteval_dir: str | Path,
    tasks: Sequence[str] = tuple(TRANSFER_TASKS),
    seed: int = SENTEVAL_SEED,
) -> dict[str, Transferred]:
    """`evaluate_transfer` with the single answers."""
    names = list(dict.fromkeys(map(transfer_task_name, tasks)))
    data = {name: TRANSFER_TASKS[name].load(senteval_dir) for name in names}
    for name, parts in data.items():
        _check_classes(name, parts["train"])
    sides = [side for parts in data.values() for part in parts.values() for side in part.sides]
    vectors = iter(encode_distinct(encode, *sides))
    return {name: _score(name, parts, vectors, seed) for name, parts in data.items()}


def _check_classes(task: str, train: Part) -> None:
    counts = np.bincount(train.labels, minlength=2)
    # Two for each fold, so that nine tenths of them still fill ten folds inside.
    if counts.min() < 2 * FOLDS:
        raise UserError(
            f"{task}: class number {int(counts.argmin())} has {int(counts.min())} training "
            f"examples: {FOLDS} folds need at least {2 * FOLDS}; download the task again"
        )


def _score(
    task: str, parts: dict[str, Part], vectors: Iterator[np.ndarray], seed: int
) -> Transferred:
    from threadpoolctl import threadpool_limits

    features = [_features([next(vectors) for _ in part.sides]) for part in parts.values()]
    if not all(np.isfinite(rows).all() for rows in features):
        raise UserError(
            f"{task}: the encoder gives vectors that are not finite: it has diverged, take an "
            "earlier step of it"
        )
    outcome = Outcome()
    # Products this small gain nothing from threads.
    with threadpool_limits(1):
        blocks = {
            name: (rows, part.labels)
            for (name, part), rows in zip(parts.items(), design(*features), strict=True)
        }
        PROTOCOLS[TRANSFER_TASKS[task].protocol](blocks, seed, outcome)
    train, test = parts["train"], parts.get("test", parts["train"])
    scores = {
        "accuracy": float(np.mean(outcome.accuracy)),
        **({"f1": outcome.f1[0]} if len(train.sides) > 1 else {}),
        "dev_accuracy": float(np.mean(outcome.dev_accuracy)),
        "train": len(train),
        "test": len(test),
        "regularisation": outcome.regularisation,
        "unconverged": outcome.unconverged,
    }
    return Transferred(scores, np.concatenate(outcome.right))


def _features(sides: list[np.ndarray]) -> np.ndarray:
    """(N, D) vectors as they are; of a pair u, v: [|u - v|, u * v] (N, 2 D). In float32."""
    u, *others = (np.asarray(side, np.float32) for side in sides)
    if not others:
        return u
    (v,) = others
    return np.hstack([abs(u - v), u * v])
