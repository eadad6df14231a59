"""cotbert evaluate: score encoders on the tasks of a SentEval folder, MTEB, graded pairs, or
a corpus's held-out documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from pipelines.evaluating.counting import CountedEncode
from pipelines.evaluating.differences import difference_sentences, differences
from pipelines.evaluating.evaluation_data import (
    LEAST_RESAMPLES,
    EvaluationData,
    read_evaluation_data,
)
from pipelines.evaluating.files import Files
from pipelines.evaluating.metrics import difference_metrics, flat_metrics
from pipelines.evaluating.model import Model
from pipelines.evaluating.model_specs import ModelSpec, label_of, numbered
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.readout_options import OpenReadout, check_readout, open_readout
from pipelines.evaluating.transforms import (
    check_transform,
    sample_name,
    sample_sentences,
    transformed,
)
from pipelines.recording import tracking
from pipelines.runtime.progress import say


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
    data = read_evaluation_data(options)
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
    data = read_evaluation_data(common)
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


def _labels(several: Sequence[EvaluateOptions]) -> list[str]:
    """Return a label for each model. Each is opened and closed again, so that a model that cannot
    be read does not stop the job halfway."""
    for options in several:
        check_readout(options)
    return numbered([_label(options, open_readout(options, [])) for options in several])


def _label(options: EvaluateOptions, readout: OpenReadout) -> str:
    return label_of(ModelSpec(options.model, options.template, options.readout), readout)


def _score(
    options: EvaluateOptions, data: EvaluationData, parent: str | None, files: Files | None = None
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
