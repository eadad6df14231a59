"""cotbert evaluate: score encoders on the tasks of a SentEval folder, MTEB, graded pairs, or
a corpus's held-out documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.evaluation.labelled import Labelled
from pipelines.evaluating.changed_queries import changed_queries
from pipelines.evaluating.counting import EncodeCounter
from pipelines.evaluating.differences import difference_sentences, differences
from pipelines.evaluating.evaluation_data import (
    LEAST_RESAMPLES,
    EvaluationData,
    only_mteb,
    read_evaluation_data,
)
from pipelines.evaluating.files import Files, Show
from pipelines.evaluating.model_specs import label_of, with_labels
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.published import published_backbone
from pipelines.evaluating.readout_options import (
    OpenReadout,
    check_readout,
    open_readout,
    scoring_notes,
)
from pipelines.evaluating.tables import Model
from pipelines.evaluating.transforms import (
    check_transform,
    sample_name,
    sample_sentences,
    transformed,
)
from pipelines.recording import tracking
from pipelines.recording.metric_names import DIFFERENCE, P_VALUE, SUBSETS
from pipelines.runtime.progress import say, say_once


def evaluate(
    options: EvaluateOptions,
    output: Path | None = None,
    parent: str | None = None,
    reports: Sequence[Path] = (),
    labelled: Labelled | None = None,
    name: str | None = None,
    on_failure: Show | None = None,
) -> dict[str, Any]:
    """Evaluate a model; return scores by task (x 100), averages and intervals.

    output: a JSON file for the result. reports: HTML or Markdown files, by their endings. labelled:
    texts to score too, instead of those of options.labelled. name: of the model in its MLflow run,
    by default its folder and readout. on_failure: shows the result if a file cannot be written.
    Raises UserError for missing data or options that cannot be combined, before the encoder is
    opened.
    """
    files = Files.checked(output, reports, on_failure)
    data = read_evaluation_data(options, labelled)
    return _score(options, data, parent, files, name=name).result


def evaluate_several(
    several: Sequence[EvaluateOptions],
    output: Path | None = None,
    parent: str | None = None,
    reports: Sequence[Path] = (),
    labelled: Labelled | None = None,
    on_failure: Show | None = None,
) -> dict[str, Any]:
    """Evaluate several models on the same tasks; return their results and the differences to the
    first model.

    several: options that only differ in model, template and readout. labelled, on_failure: as in
    `evaluate`.
    """
    files = Files.checked(output, reports, on_failure)
    common = several[0]
    if not common.resamples and not only_mteb(common):
        raise UserError(
            f"resamples is 0 and {len(several)} models are compared, which needs resamples: give "
            f"at least {LEAST_RESAMPLES}, or a single model"
        )
    data = read_evaluation_data(common, labelled)
    labels, kept = with_labels(several)
    # --remove counts tokens in the scored sentences, which these were opened without.
    opened = [None if o.remove else r for o, r in zip(several, kept, strict=True)]
    params = _params(replace(common, model=", ".join(labels), template=None, readout=None))
    about = f"Scores {params['model']} on the same tasks, with the differences between them."
    with tracking.tracked_run("evaluate", params, about=about, parent=parent, output=output) as run:
        models = {}
        for label, options, readout in zip(labels, several, opened, strict=True):
            say(f"evaluate {label}")
            model = _score(options, data, run.key, readout=readout)
            models[label] = replace(model, label=label)
        first, *others = models.values()
        result: dict[str, Any] = {
            "models": {label: model.result for label, model in models.items()},
            "against": first.label,
            "differences": {o.label: differences(first.scored, o.scored) for o in others},
        }
        result["verdicts"] = difference_sentences(result)
        if data.held_out is not None:
            result["changed_queries"] = {
                o.label: changed_queries(data.held_out, first.scored.ranks, o.scored.ranks)
                for o in others
            }
        run.metrics(_difference_metrics(result["differences"]))
        result["mlflow_run_id"] = run.id
        files.write(run, result, list(models.values()))
    return result


def _score(
    options: EvaluateOptions,
    data: EvaluationData,
    parent: str | None,
    files: Files | None = None,
    readout: OpenReadout | None = None,
    name: str | None = None,
) -> Model:
    """Score a model in an MLflow run of its own; write `files` if given. readout: the opened
    model, None to open it here. name: as in `evaluate`."""
    check_readout(options)
    # The sentences are only needed if tokens are counted or vectors are transformed.
    needed = options.remove or sample_name(options) is not None
    sentences = data.sentences() if needed else []
    sample = sample_sentences(options, sentences)
    readout = readout or open_readout(options, sentences)
    for note in scoring_notes(options, readout.backbone.name):
        say_once(note)
    if sample is not None:
        check_transform(options, sample, readout)
    counter = EncodeCounter()
    params, label = _params(options) | readout.used, label_of(options, readout)
    called = tracking.run_name("evaluate", name or label)
    with tracking.tracked_run("evaluate", params, name=called, parent=parent) as run:
        encode = transformed(options, readout.encode.wrapped(counter.wrap), sample)
        scored = data.score(encode, options.resamples)
        result = scored.entries | {"sentences_per_second": round(counter.rate, 1)}
        run.metrics(_flat_metrics(result))
        result |= {"mlflow_run_id": run.id, **readout.used, **readout.counts()}
        if options.resamples:
            result["resamples"] = options.resamples
        backbone = published_backbone(readout.backbone, readout.encoder)
        model = Model(label, result, scored, backbone, readout.method)
        if files is not None:
            files.write(run, result, [model])
    return model


def _params(options: EvaluateOptions) -> dict[str, Any]:
    return {key: value for key, value in vars(options).items() if value not in (None, ())}


def _flat_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return one model's metrics: STS12.spearman, STS12.low, STS12.subsets.MSRpar, average, ..."""
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": number for key, number in value.items()}
            subsets = value.get(SUBSETS, {}).items()
            flat |= {f"{name}.{SUBSETS}.{subset}": number for subset, number in subsets}
        else:
            flat[name] = value
    return _finite(flat)


def _difference_metrics(differences: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of several models: average.difference/MODEL, average.p/MODEL, and the same
    for each task."""
    return _finite(
        {
            f"{task}.{key}/{model}": entry[key]
            for model, entries in differences.items()
            for task, entry in entries.items()
            for key in (DIFFERENCE, P_VALUE)
        }
    )


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that are finite numbers."""
    numbers = {name: v for name, v in values.items() if isinstance(v, (int, float))}
    return {name: float(v) for name, v in numbers.items() if math.isfinite(v)}
