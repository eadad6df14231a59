"""cotbert evaluate: an encoder on the STS tasks of a SentEval folder or on graded pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder import SentenceEncoder
from cotbert_core.errors import UserError
from cotbert_core.evaluation import Pairs, read_pairs, score_pairs
from cotbert_core.evaluation.pairs import Encode, PairScores
from cotbert_core.files import write_json
from cotbert_core.settings import Precision
from pipelines import tracking
from pipelines.dev import BUILT_IN_PAIRS
from pipelines.evaluate_options import EvaluateOptions
from pipelines.outputs import check_free
from pipelines.progress import Progress
from pipelines.readouts import (
    check_readout,
    check_whitening,
    open_readout,
    whitened,
    whitening_sample,
)
from pipelines.tasks import Tasks, choose_tasks

SPLITS = ("dev", "test")
# Sentences encoded between two lines of progress: enough to sort by length.
SHOWN_SENTENCES = 4096


def evaluate(
    options: EvaluateOptions, output: Path | None = None, parent: str | None = None
) -> dict[str, Any]:
    """Scores by task (x 100), with the average over tasks; written to `output` when given."""
    output = _free_file(output) if output else None
    if options.tasks is not None and options.senteval is None:
        raise UserError(f"tasks is {options.tasks!r} without a SentEval folder: give --senteval")
    check_readout(options)
    tasks = (
        choose_tasks(options.senteval, options.tasks or "sts", options.allow_missing)
        if options.senteval
        else None
    )
    use_pairs = options.pairs is not None or options.senteval is None
    pairs = read_splits(options.pairs or BUILT_IN_PAIRS) if use_pairs else {}
    sentences = _sentences(options, tasks, pairs)
    sample = whitening_sample(options, sentences)
    readout = open_readout(options, sentences)
    if sample is not None:
        check_whitening(options, sample, readout)
    counted = CountedEncode(readout.encoder, options.precision)
    params = {key: value for key, value in vars(options).items() if value not in (None, ())}
    with tracking.tracked_run("evaluate", params | readout.used, parent=parent) as run:
        encode = counted if sample is None else whitened(options, counted, sample)
        result = _scores(encode, tasks, pairs)
        result["sentences_per_second"] = round(counted.rate, 1)
        run.metrics(_flat_metrics(result))
        result |= {"mlflow_run_id": run.id, **readout.used, **readout.told()}
        if output is not None:
            write_json(output, result)
            run.artifact(output)
    return result


def _scores(encode: Encode, tasks: Tasks | None, pairs: dict[str, Pairs]) -> dict[str, Any]:
    """The entries of the tasks, their averages and the pairs."""
    result = tasks.scores(encode) if tasks is not None else {}
    return result | _pairs_result({name: score_pairs(encode, p) for name, p in pairs.items()})


def _sentences(options: EvaluateOptions, tasks: Tasks | None, pairs: dict[str, Pairs]) -> list[str]:
    """All distinct sentences that will be scored, if tokens are counted or vectors whitened."""
    if not options.remove and options.whiten is None:
        return []
    own = [s for p in pairs.values() for s in (*p.left, *p.right)]
    return list(dict.fromkeys([*(tasks.sentences() if tasks is not None else ()), *own]))


class CountedEncode:
    """`encode` with progress and a count of sentences and seconds."""

    def __init__(self, encoder: SentenceEncoder | Encode, precision: Precision = "auto") -> None:
        self._encode = (
            partial(encoder.encode, precision=precision)
            if isinstance(encoder, SentenceEncoder)
            else encoder
        )
        self.sentences, self.seconds = 0, 0.0

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        started = time.perf_counter()
        progress = Progress("evaluate", len(sentences), "sentence")
        pieces = []
        for start in range(0, len(sentences), SHOWN_SENTENCES):
            piece = sentences[start : start + SHOWN_SENTENCES]
            pieces.append(self._encode(piece))
            if len(sentences) > SHOWN_SENTENCES:
                progress.show(start + len(piece))
        self.seconds += time.perf_counter() - started
        self.sentences += len(sentences)
        return np.concatenate(pieces)

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds if self.seconds else 0.0


def score_splits(encode: Any, pairs: Path) -> dict[str, PairScores]:
    """Scores of the dev and the test half of a pairs file; {'all': ...} if it has no halves."""
    return {name: score_pairs(encode, p) for name, p in read_splits(pairs).items()}


def read_splits(path: Path) -> dict[str, Pairs]:
    """The dev and the test half of a pairs file; {'all': ...} if it has no halves."""
    whole = read_pairs(path)
    with path.open(encoding="utf-8") as lines:
        halves = "split" in lines.readline().rstrip("\r\n").split("\t")
    return {name: read_pairs(path, name) for name in SPLITS} if halves else {"all": whole}


def _free_file(path: Path) -> Path:
    """The absolute path of a file that is not there yet."""
    path = check_free(path)
    if path.is_dir():
        raise UserError(f"output {str(path)!r} is a folder: give a file")
    return path


def _pairs_result(scores: dict[str, PairScores]) -> dict[str, Any]:
    return {
        f"pairs-{split}": {
            "spearman": score.spearman,
            # JSON has no NaN: without a pair graded above 4 there is no alignment.
            "alignment": None if np.isnan(score.alignment) else score.alignment,
            "uniformity": score.uniformity,
            "pairs": len(score.cosine),
        }
        for split, score in scores.items()
    }


def _flat_metrics(result: dict[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in result.items():
        scores = value if isinstance(value, dict) else {"": value}
        for key, number in scores.items():
            if isinstance(number, (int, float)) and np.isfinite(number):
                flat[f"{name}.{key}" if key else name] = float(number)
    return flat
