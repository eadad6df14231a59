"""cotbert geometry: compare the distribution of several encoders' vectors, in a table and a plot.

It computes CoT-BERT Table 5 (alignment, uniformity) and Figure 3, and PromptBERT Tables 1 and 2
(anisotropy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation import anisotropy
from cotbert_core.evaluation.held_out import HeldOut, score_held_out
from cotbert_core.evaluation.pairs import EncodeFunctions, Pairs, score_pairs
from cotbert_core.evaluation.sts import STS_TASKS
from cotbert_core.files import atomic_folder, write_json, write_text
from pipelines.evaluating.counting import EncodeCounter, read_splits
from pipelines.evaluating.geometry_page import FOUND_FIRST, NUMBERS, geometry_page
from pipelines.evaluating.model_specs import options_of_model, with_labels
from pipelines.evaluating.options import EvaluateOptions, GeometryOptions
from pipelines.evaluating.readout_options import OpenReadout, open_readout, scoring_notes
from pipelines.evaluating.scoring import score_of, without_nan
from pipelines.reading.text_files import PlainTexts, read_texts, sample
from pipelines.recording import tracking
from pipelines.reports import similarity_plot
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say, say_once
from pipelines.storage.held_out_file import has_held_out, read_held_out
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import locked_output
from pipelines.training.dev_sets import BUILT_IN_PAIRS


@dataclass(frozen=True)
class Geometry:
    """The measurements of a model.

    spearman: x 100; None for equal cosines. alignment: None without pairs graded above 4.
    found_first: share in % of test queries that find their held-out document first; None without
    held-out documents.
    """

    label: str
    model: str
    readout: str
    template: str | None
    spearman: float | None
    alignment: float | None
    uniformity: float
    anisotropy: float
    token_anisotropy: float
    cosine: np.ndarray
    found_first: float | None = None


@dataclass(frozen=True)
class _GeometryData:
    source: str
    pairs: Pairs
    corpus: PlainTexts | None
    sampled: list[str]
    held_out: HeldOut | None = None


def geometry(options: GeometryOptions, output: Path) -> dict[str, Any]:
    """Write the report into the folder `output` and return the flat result."""
    output = require_empty(output)
    if options.sentences < 2:
        raise UserError(f"sentences is {options.sentences}: give at least 2 to compare")
    common = EvaluateOptions(precision=options.precision)
    models = [options_of_model(common, text) for text in options.models]
    data = _data(options)
    labels, opened = with_labels(models)
    params = {key: value for key, value in vars(options).items() if value is not None}
    tracked = tracking.tracked_run("geometry", params, output=output)
    with locked_output(output), tracked as run, atomic_folder(output) as folder:
        rate, rows = _measure(labels, models, opened, data)
        result = _result(rows, data) | {
            "sentences_per_second": round(rate, 1),
            "mlflow_run_id": run.id,
        }
        run.result(result)
        _write(folder, rows, data, result)
        for path in sorted(folder.iterdir()):
            run.artifact(path)
    return result


def _data(options: GeometryOptions) -> _GeometryData:
    """Return all data, read before any model is opened."""
    if options.senteval is not None:
        pairs = STS_TASKS["STS-B"][1](options.senteval)["all"]
        source = "STS-B test"
    else:
        path = options.pairs or BUILT_IN_PAIRS
        splits = read_splits(path)
        half = "test" if "test" in splits else next(iter(splits))
        pairs, source = splits[half], f"{path.name}, {half}"
    if options.corpus is None:
        return _GeometryData(source, pairs, None, [])
    corpus = read_texts(options.corpus, options.text_column, options.encoding)
    sampled = sample(corpus.sentences, options.sentences)
    if len(sampled) < 2:
        raise UserError(f"corpus {options.corpus!r} has 1 distinct sentence: give at least 2")
    held_out = read_held_out(options.corpus, "test") if has_held_out(options.corpus) else None
    return _GeometryData(source, pairs, corpus, sampled, held_out)


def _measure(
    labels: Sequence[str],
    models: Sequence[EvaluateOptions],
    opened: Sequence[OpenReadout | None],
    data: _GeometryData,
) -> tuple[float, list[Geometry]]:
    """Return sentences per second over all models, and their measurements."""
    counter, rows = EncodeCounter(), []
    for label, options, kept in zip(labels, models, opened, strict=True):
        say(f"geometry {label}")
        model = kept or open_readout(options, [])
        for note in scoring_notes(options, model.backbone.name):
            say_once(note)
        rows.append(_one(label, options.model, model, model.encode.wrapped(counter.wrap), data))
    return counter.rate, rows


def _one(
    label: str, name: str, model: OpenReadout, encode: EncodeFunctions, data: _GeometryData
) -> Geometry:
    encoded: list[np.ndarray] = []

    def encode_pairs(sentences: Sequence[str]) -> np.ndarray:
        encoded.append(encode.texts(sentences))
        return encoded[-1]

    scores = score_pairs(encode_pairs, data.pairs)
    vectors = encode.texts(data.sampled) if data.sampled else encoded[0]
    words = model.backbone.model.get_input_embeddings().weight.detach()
    found_first = None
    if data.held_out is not None:
        found_first = score_held_out(encode, data.held_out).found_first
    return Geometry(
        label=label,
        model=name,
        readout=model.readout,
        template=model.template.text if model.template else None,
        spearman=without_nan(scores.spearman),
        alignment=without_nan(scores.alignment),
        uniformity=scores.uniformity,
        anisotropy=anisotropy(vectors),
        token_anisotropy=anisotropy(words.cpu().numpy()),
        cosine=scores.cosine,
        found_first=found_first,
    )


def _result(rows: Sequence[Geometry], data: _GeometryData) -> dict[str, Any]:
    pairs = data.pairs
    counts = {
        "models": len(rows),
        "pairs_source": data.source,
        "pairs": len(pairs),
        "pairs_above_4": int((pairs.gold > 4.0).sum()),
        "pair_sentences": len({*pairs.left, *pairs.right}),
    }
    if data.corpus is not None:
        counts |= {
            "corpus_read": data.corpus.read,
            **{f"corpus_dropped_{reason}": n for reason, n in data.corpus.dropped.items()},
            "corpus_sentences": len(data.sampled),
        }
    if data.held_out is not None:
        counts |= {"queries": len(data.held_out), "targets": data.held_out.searched}
    names = (*NUMBERS, FOUND_FIRST) if data.held_out is not None else NUMBERS
    numbers = {f"{name}/{row.label}": getattr(row, name) for row in rows for name in names}
    return counts | numbers


def _write(folder: Path, rows: list[Geometry], data: _GeometryData, result: dict[str, Any]) -> None:
    hidden = {"cosine", *((FOUND_FIRST,) if data.held_out is None else ())}
    models = [{k: v for k, v in asdict(row).items() if k not in hidden} for row in rows]
    counts = {key: value for key, value in result.items() if "/" not in key}
    write_json(folder / "geometry.json", counts | {"models": models})
    write_json(folder / RESULT_FILE, result)
    panels = [(row.label, row.cosine, score_of(row.spearman)) for row in rows]
    svg = similarity_plot.similarity_figure(data.pairs.gold, panels)
    write_text(folder / "scatter.svg", svg)
    page = geometry_page(result, data.pairs.gold, panels, len(data.sampled))
    write_text(folder / REPORT_FILE, page)
