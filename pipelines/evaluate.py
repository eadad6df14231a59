"""cotbert evaluate: score encoders on the tasks of a SentEval folder, MTEB, graded pairs, or
a corpus's held-out documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.evaluation import HeldOut, Pairs, score_held_out, score_pairs
from cotbert_core.evaluation.pairs import Encode
from pipelines.evaluating.counting import CountedEncode, read_splits
from pipelines.evaluating.differences import difference_sentences, differences
from pipelines.evaluating.evaluation_tasks import Tasks, choose_tasks
from pipelines.evaluating.files import Files
from pipelines.evaluating.metrics import difference_metrics, flat_metrics
from pipelines.evaluating.model import Model
from pipelines.evaluating.model_specs import ModelSpec, label_of, numbered
from pipelines.evaluating.mteb_tasks import MtebTasks, open_tasks, split_tasks
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.readout_options import OpenReadout, check_readout, open_readout
from pipelines.evaluating.scoring import Scored, add_held_out, add_pairs
from pipelines.evaluating.transforms import (
    check_transform,
    sample_name,
    sample_sentences,
    transformed,
)
from pipelines.recording import tracking
from pipelines.runtime.progress import say
from pipelines.storage.held_out_file import read_held_out
from pipelines.training.dev_sets import BUILT_IN_PAIRS

# With fewer resamples the 2.5th percentile is one of the two lowest.
LEAST_RESAMPLES = 100


@dataclass(frozen=True)
class _EvaluationData:
    """The tasks and pairs to score, read before any encoder is opened."""

    tasks: Tasks | None
    pairs: dict[str, Pairs]
    mteb: MtebTasks | None = None
    held_out: HeldOut | None = None

    def sentences(self) -> list[str]:
        """Return all distinct texts of the SentEval tasks, the pairs and the documents."""
        own = [s for p in self.pairs.values() for s in (*p.left, *p.right)]
        if self.held_out is not None:
            own += [*self.held_out.queries, *self.held_out.targets]
        return list(dict.fromkeys([*(self.tasks.sentences() if self.tasks else ()), *own]))

    def score(self, encode: Encode, resamples: int) -> Scored:
        """Return the scores of the tasks, their averages, the pairs and the documents."""
        scored = Scored()
        if self.tasks is not None:
            self.tasks.score_into(scored, encode, resamples)
        splits = {name: (score_pairs(encode, p), p.gold) for name, p in self.pairs.items()}
        add_pairs(scored, splits, resamples)
        if self.held_out is not None:
            found = score_held_out(encode, self.held_out)
            add_held_out(scored, found, self.held_out, resamples)
        if self.mteb is not None:
            self.mteb.score_into(scored, encode)
        return scored


def evaluate(
    options: EvaluateOptions,
    output: Path | None = None,
    parent: str | None = None,
    reports: Sequence[Path] = (),
) -> dict[str, Any]:
    """Evaluate a model; return scores by task (x 100), averages and intervals.

    output: a JSON file for the result. reports: HTML or Markdown files, by their endings. Raises
    UserError for missing data or options that cannot be combined, before the encoder is opened.
    """
    files = Files.checked(output, reports)
    data = _read(options)
    return _score(options, data, parent, files).result


def evaluate_several(
    several: Sequence[EvaluateOptions],
    output: Path | None = None,
    parent: str | None = None,
    reports: Sequence[Path] = (),
) -> dict[str, Any]:
    """Evaluate several models on the same tasks; return their results and the differences to the
    first model.

    several: options that only differ in model, template and readout.
    """
    files = Files.checked(output, reports)
    common = several[0]
    if not common.resamples:
        raise UserError(
            f"resamples is 0 and {len(several)} models are compared, which needs resamples: give "
            f"at least {LEAST_RESAMPLES}, or a single model"
        )
    data = _read(common)
    labels = _labels(several)
    params = _params(replace(common, model=", ".join(labels), template=None, readout=None))
    about = f"Scores {params['model']} on the same tasks, with the differences between them."
    with tracking.tracked_run("evaluate", params, about=about, parent=parent, output=output) as run:
        models = {}
        for label, options in zip(labels, several, strict=True):
            say(f"evaluate {label}")
            models[label] = replace(_score(options, data, run.key), label=label)
        first, *others = models.values()
        result: dict[str, Any] = {
            "models": {label: model.result for label, model in models.items()},
            "against": first.label,
            "differences": {o.label: differences(first.scored, o.scored) for o in others},
        }
        result["verdicts"] = difference_sentences(result)
        run.metrics(difference_metrics(result["differences"]))
        result["mlflow_run_id"] = run.id
        files.write(run, result, list(models.values()))
    return result


def _read(options: EvaluateOptions) -> _EvaluationData:
    """Read the tasks and pairs; UserError if they are missing."""
    if 0 < options.resamples < LEAST_RESAMPLES or options.resamples < 0:
        raise UserError(
            f"resamples is {options.resamples}: give at least {LEAST_RESAMPLES}, or 0 for none"
        )
    folder, (own, mteb) = options.senteval, split_tasks(options.tasks or "sts")
    if options.tasks is not None and own and folder is None:
        raise UserError(f"tasks is {options.tasks!r} without a SentEval folder: give --senteval")
    if mteb and sample_name(options) is not None:
        raise UserError(
            "MTEB's tasks cannot be whitened, ranked or mapped by a flow: leave --whiten, --rank, "
            "--flow or mteb out"
        )
    tasks = choose_tasks(folder, own, options.allow_missing) if folder and own else None
    held_out = read_held_out(options.corpus, "test") if options.corpus is not None else None
    others = (tasks, mteb, held_out)
    use_pairs = options.pairs is not None or not any(others)
    pairs = read_splits(options.pairs or BUILT_IN_PAIRS) if use_pairs else {}
    opened = open_tasks(mteb, options.allow_missing) if mteb else None
    return _EvaluationData(tasks, pairs, opened, held_out)


def _labels(several: Sequence[EvaluateOptions]) -> list[str]:
    """Return a label for each model. Each is opened and closed again, so that a model that cannot
    be read does not stop the job halfway."""
    for options in several:
        check_readout(options)
    return numbered([_label(options, open_readout(options, [])) for options in several])


def _label(options: EvaluateOptions, readout: OpenReadout) -> str:
    return label_of(ModelSpec(options.model, options.template, options.readout), readout)


def _score(
    options: EvaluateOptions, data: _EvaluationData, parent: str | None, files: Files | None = None
) -> Model:
    """Score a model in an MLflow run of its own; write `files` if given."""
    check_readout(options)
    # The sentences are only needed if tokens are counted or vectors are transformed.
    needed = options.remove or sample_name(options) is not None
    sentences = data.sentences() if needed else []
    sample = sample_sentences(options, sentences)
    readout = open_readout(options, sentences)
    if sample is not None:
        check_transform(options, sample, readout)
    counted = CountedEncode(readout.encoder, options.precision)
    params, label = _params(options) | readout.used, _label(options, readout)
    name = tracking.run_name("evaluate", label)
    with tracking.tracked_run("evaluate", params, name=name, parent=parent) as run:
        encode = counted if sample is None else transformed(options, counted, sample)
        scored = data.score(encode, options.resamples)
        result = scored.entries | {"sentences_per_second": round(counted.rate, 1)}
        run.metrics(flat_metrics(result))
        result |= {"mlflow_run_id": run.id, **readout.used, **readout.counts()}
        if options.resamples:
            result["resamples"] = options.resamples
        model = Model.of(label, result, scored, readout)
        if files is not None:
            files.write(run, result, [model])
    return model


def _params(options: EvaluateOptions) -> dict[str, Any]:
    return {key: value for key, value in vars(options).items() if value not in (None, ())}
