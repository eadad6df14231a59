"""SentEval's seven transfer tasks (PromptBERT Table 15).

The score is the accuracy x 100 of a linear classifier on frozen sentence vectors.

The protocol is that of SentEval's validation.py with its logistic regression: the same splits, seed
and grids. MR, CR, SUBJ and MPQA have no test part: each of 10 folds is scored by a classifier of
the other nine, and its regularisation is chosen by 10 folds inside those nine. TREC and MRPC choose
it by 10 folds of the training part, SST2 by its dev part.

There is one difference: SentEval uses scikit-learn's liblinear (one class against the rest, with a
penalised intercept), and this module its default solver (softmax, with a free intercept). The
papers' tables come from SentEval's other classifier, a torch model without a hidden layer that is
trained with Adam until its dev accuracy stops rising.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import Encode, encode_distinct
from cotbert_core.evaluation.transfer_data import TRANSFER_TASKS, Part, transfer_task_name

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression

FOLDS = 10
SENTEVAL_SEED = 1111
# Inverse strengths of the L2 penalty (scikit-learn's C), the two ranges of validation.py.
GRID = tuple(2.0**t for t in range(-2, 4))
TRAIN_TEST_GRID = tuple(2.0**t for t in range(-1, 6))
MAX_STEPS = 1000

# Features (N, D) and labels (N,).
Block = tuple[np.ndarray, np.ndarray]


@dataclass
class Outcome:
    """The results of a task, one value for each chosen regularisation and scored test part.

    Accuracies and f1 are x 100. unconverged: number of classifiers that did not converge. right:
    for each test part, whether each example was classified correctly.
    """

    accuracy: list[float] = field(default_factory=list)
    f1: list[float] = field(default_factory=list)
    dev_accuracy: list[float] = field(default_factory=list)
    regularisation: list[float] = field(default_factory=list)
    unconverged: int = 0
    right: list[np.ndarray] = field(default_factory=list)

    def fit(self, block: Block, regularisation: float) -> LogisticRegression:
        model = fit(*block, regularisation)
        self.unconverged += bool(model.n_iter_.max() >= MAX_STEPS)
        return model

    def choose(self, splits: Iterable[tuple[Block, Block]], grid: Sequence[float]) -> float:
        """Return the C of `grid` with the best mean accuracy over (train, dev) splits.

        Means are rounded to two decimals as in SentEval; the smallest C wins ties.
        """
        scores = [[100 * self.fit(train, c).score(*dev) for c in grid] for train, dev in splits]
        means = np.mean(scores, axis=0).round(2)
        best = int(means.argmax())
        self.regularisation.append(grid[best])
        self.dev_accuracy.append(float(means[best]))
        return grid[best]

    def test(self, train: Block, test: Block, regularisation: float) -> None:
        """Train a classifier on `train`, score it on `test` and store the results."""
        from sklearn.metrics import f1_score

        rows, labels = test
        predicted = self.fit(train, regularisation).predict(rows)
        self.right.append(predicted == labels)
        self.accuracy.append(100 * float(self.right[-1].mean()))
        self.f1.append(100 * f1_score(labels == 1, predicted == 1, zero_division=0))


def fit(rows: np.ndarray, labels: np.ndarray, regularisation: float) -> LogisticRegression:
    """Return the classifier of features (N, D) with labels (N,). regularisation: C."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the outcome counts them
        return LogisticRegression(C=regularisation, max_iter=MAX_STEPS).fit(rows, labels)


def folds(block: Block, seed: int) -> Iterator[tuple[Block, Block]]:
    """Yield the 10 stratified (nine tenths, one tenth) splits of a block."""
    from sklearn.model_selection import StratifiedKFold

    rows, labels = block
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for train, test in splitter.split(rows, labels):
        yield (rows[train], labels[train]), (rows[test], labels[test])


def _nested(parts: dict[str, Block], seed: int, outcome: Outcome) -> None:
    """Score nested folds, as SentEval's InnerKFoldClassifier does."""
    for train, test in folds(parts["train"], seed):
        outcome.test(train, test, outcome.choose(folds(train, seed), GRID))


def _train_test(parts: dict[str, Block], seed: int, outcome: Outcome) -> None:
    """Choose by folds of the training part and score the test part (SentEval's KFoldClassifier)."""
    chosen = outcome.choose(folds(parts["train"], seed), TRAIN_TEST_GRID)
    outcome.test(parts["train"], parts["test"], chosen)


def _train_dev_test(parts: dict[str, Block], seed: int, outcome: Outcome) -> None:
    """Choose by the dev part and score the test part (SentEval's SplitClassifier); no sampling."""
    chosen = outcome.choose([(parts["train"], parts["dev"])], GRID)
    outcome.test(parts["train"], parts["test"], chosen)


PROTOCOLS: dict[str, Callable[[dict[str, Block], int, Outcome], None]] = {
    "nested": _nested,
    "train-test": _train_test,
    "train-dev-test": _train_dev_test,
}


@dataclass(frozen=True)
class Transferred:
    """The result of one task.

    scores: accuracy, dev_accuracy and f1 (MRPC only; all x 100), train and test (numbers of
    examples; both are the whole task if it has only folds), regularisation (the chosen C of each
    outer fold) and unconverged (number of classifiers that were stopped at 1,000 steps). right:
    (N,) whether each test example was classified correctly; with the same labels and seed the
    examples and their order are the same.
    """

    scores: dict[str, Any]
    right: np.ndarray


def score_transfer(
    encode: Encode, data: Mapping[str, dict[str, Part]], seed: int = SENTEVAL_SEED
) -> dict[str, Transferred]:
    """Return the result of each task that `load_transfer` has read. seed: seed of the folds.

    Every distinct sentence of all tasks is encoded once; one core is used.
    """
    sides = [side for parts in data.values() for part in parts.values() for side in part.sides]
    vectors = iter(encode_distinct(encode, *sides))
    return {name: _score(name, parts, vectors, seed) for name, parts in data.items()}


def load_transfer(senteval_dir: str | Path, tasks: Sequence[str]) -> dict[str, dict[str, Part]]:
    """Return the parts of each task.

    Raises UserError for an unknown or missing task, a line without a label or a class that is too
    small for the folds.
    """
    names = list(dict.fromkeys(map(transfer_task_name, tasks)))
    data = {name: TRANSFER_TASKS[name].load(senteval_dir) for name in names}
    for name, parts in data.items():
        _check_classes(name, parts)
    return data


def _check_classes(task: str, parts: Mapping[str, Part]) -> None:
    classes = 1 + max(part.labels.max() for part in parts.values())
    counts = np.bincount(parts["train"].labels, minlength=max(2, classes))
    # With two examples per fold, the remaining nine tenths are enough for ten inner folds.
    if counts.min() < 2 * FOLDS:
        raise UserError(
            f"{task}: class number {int(counts.argmin())} has {int(counts.min())} training "
            f"examples, and {FOLDS} folds need at least {2 * FOLDS}: download the task again"
        )


def _score(
    task: str, parts: dict[str, Part], vectors: Iterator[np.ndarray], seed: int
) -> Transferred:
    from threadpoolctl import threadpool_limits

    blocks = {
        name: (_features([next(vectors) for _ in part.sides]), part.labels)
        for name, part in parts.items()
    }
    outcome = Outcome()
    # Threads do not speed up products of this size.
    with threadpool_limits(1):
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
    """Return features in float32: vectors (N, D), or [|u - v|, u * v] (N, 2 D) for pairs u, v."""
    u, *others = (np.asarray(side, np.float32) for side in sides)
    if not others:
        return u
    (v,) = others
    return np.hstack([abs(u - v), u * v])
