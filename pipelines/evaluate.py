"""cotbert evaluate: an encoder on the STS tasks of a SentEval folder or on graded pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder import SentenceEncoder
from cotbert_core.errors import UserError
from cotbert_core.evaluation import STS_TASKS, Pairs, evaluate_sts, read_pairs, score_pairs
from cotbert_core.evaluation.pairs import PairScores
from cotbert_core.evaluation.sts import missing_tasks, task_name
from cotbert_core.files import write_json
from pipelines import tracking
from pipelines.outputs import check_free
from pipelines.progress import Progress, say
from pipelines.train import BUILT_IN_PAIRS

SPLITS = ("dev", "test")
# Sentences encoded between two lines of progress: enough to sort by length.
SHOWN_SENTENCES = 4096


@dataclass(frozen=True)
class EvaluateOptions:
    """senteval: a SentEval folder; pairs: a file of graded pairs; with neither, the pairs that
    come with this package. template, readout: read the encoder another way than its own."""

    model: str
    senteval: Path | None = None
    pairs: Path | None = None
    tasks: str | None = None
    allow_missing: bool = False
    template: str | None = None
    readout: str | None = None
    precision: str = "auto"


def evaluate(
    options: EvaluateOptions, output: Path | None = None, parent: str | None = None
) -> dict[str, Any]:
    """Scores by task (x 100), with the average over tasks; written to `output` when given."""
    output = _free_file(output) if output else None
    if options.tasks is not None and options.senteval is None:
        raise UserError(f"tasks is {options.tasks!r} without a SentEval folder: give --senteval")
    tasks = _tasks(options) if options.senteval else []
    use_pairs = options.pairs is not None or options.senteval is None
    pairs = read_splits(options.pairs or BUILT_IN_PAIRS) if use_pairs else {}
    encoder = SentenceEncoder.from_pretrained(options.model, options.template, options.readout)
    counted = CountedEncode(encoder, options.precision)
    params = {key: value for key, value in vars(options).items() if value is not None}
    with tracking.tracked_run("evaluate", params, parent=parent) as run:
        result: dict[str, Any] = {}
        if options.senteval:
            result |= evaluate_sts(counted, options.senteval, tasks)
            result["average"] = float(np.mean([result[task]["spearman"] for task in tasks]))
        result |= _pairs_result({name: score_pairs(counted, p) for name, p in pairs.items()})
        result["sentences_per_second"] = round(counted.rate, 1)
        result["mlflow_run_id"] = run.id
        run.metrics(_flat_metrics(result))
        if output is not None:
            write_json(output, result)
            run.artifact(output)
    return result


class CountedEncode:
    """`encode` with progress and a count of sentences and seconds."""

    def __init__(self, encoder: SentenceEncoder, precision: str = "auto") -> None:
        self._encoder, self._precision = encoder, precision
        self.sentences, self.seconds = 0, 0.0

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        started = time.perf_counter()
        progress = Progress("evaluate", len(sentences), "sentence")
        pieces = []
        for start in range(0, len(sentences), SHOWN_SENTENCES):
            piece = sentences[start : start + SHOWN_SENTENCES]
            pieces.append(self._encoder.encode(piece, precision=self._precision))  # type: ignore[arg-type]
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


def _tasks(options: EvaluateOptions) -> list[str]:
    """The tasks asked for; a missing one is an error unless allowed, and named either way."""
    assert options.senteval is not None
    if not options.senteval.is_dir():
        raise UserError(f"SentEval folder {str(options.senteval)!r} does not exist: give one")
    items = (options.tasks or "sts").split(",")
    named = [n for item in items for n in (STS_TASKS if item == "sts" else [task_name(item)])]
    wanted = list(dict.fromkeys(named))
    missing = missing_tasks(options.senteval, wanted)
    if missing and not options.allow_missing:
        raise UserError(
            f"{str(options.senteval)!r} lacks {', '.join(missing)}: add "
            f"{', '.join(STS_TASKS[m][0] for m in missing)}, choose others with --tasks, or skip "
            "them with --allow-missing"
        )
    left = [task for task in wanted if task not in missing]
    if not left:
        raise UserError(
            f"{str(options.senteval)!r} has none of the tasks {', '.join(wanted)}: choose others "
            "with --tasks"
        )
    if missing:
        say(f"warning: skipped {', '.join(missing)}: not in {options.senteval}")
    return left


def _flat_metrics(result: dict[str, Any]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in result.items():
        scores = value if isinstance(value, dict) else {"": value}
        for key, number in scores.items():
            if isinstance(number, (int, float)) and np.isfinite(number):
                flat[f"{name}.{key}" if key else name] = float(number)
    return flat
