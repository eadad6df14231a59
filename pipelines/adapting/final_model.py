"""What an adaptation hands back: the scores of its models, model/ and its card."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.evaluation.labelled import Labelled
from cotbert_core.files import atomic_folder
from cotbert_core.saving.keyword_weights import save_keyword_weights
from cotbert_core.saving.model_card import add_scores
from cotbert_core.saving.training_metadata import Score
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings
from pipelines.adapting.choosing import UNTOUCHED, Contender
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.outcome import keyword_weights, table_rows
from pipelines.evaluating.evaluate import evaluate, evaluate_several
from pipelines.evaluating.evaluation_data import read_evaluation_data
from pipelines.evaluating.options import EvaluateOptions
from pipelines.storage.corpus import Corpus
from pipelines.storage.held_out_file import has_held_out
from pipelines.storage.output_folder import RESULT_FILE
from pipelines.training.dev_sets import BUILT_IN_PAIRS, graded_sets

EVALUATION_FILE = "evaluation.json"
# The readouts of an encoder without a pooling of its own that a model folder can name: the average
# of the first and the last layer is none of them.
SAVED_READOUTS = {"last": "mean", "cls": "cls"}


def graded_file(options: AdaptOptions) -> Path | None:
    """Return the file of the graded pairs that stand for general text; None: STS-B does."""
    return options.dev_pairs or (None if options.senteval else BUILT_IN_PAIRS)


def _scored_by(options: AdaptOptions, corpus: Path | None) -> EvaluateOptions:
    """Return the options that score a model on general text and, if given, a corpus."""
    tasks = "STS-B" if options.senteval else None
    return EvaluateOptions(
        senteval=options.senteval, pairs=graded_file(options), tasks=tasks, corpus=corpus
    )


def require_general_text(options: AdaptOptions) -> None:
    """Raise UserError if the graded pairs of an adaptation's dev checks or scores are missing."""
    graded_sets(TrainSettings(dev="own"), options.senteval, graded_file(options))
    read_evaluation_data(_scored_by(options, None))


def evaluate_models(
    options: AdaptOptions,
    models: Sequence[Contender],
    corpus: Corpus,
    labelled: Labelled | None,
    output: Path,
    parent: str | None,
) -> tuple[dict[str, Any], ...]:
    """Return the scores of the models by name; of all but the first the differences to it, and the
    queries that one of both alone finds first.

    They are scored on the test queries, if documents are held out, and the test half of the labels,
    which can only confirm the winner, and on general text.
    """
    common = _scored_by(options, corpus.path if has_held_out(corpus.path) else None)
    several, path = [model.options(common) for model in models], output / EVALUATION_FILE
    path.unlink(missing_ok=True)
    names = [model.name for model in models]
    if len(several) == 1:
        return {names[0]: evaluate(several[0], path, parent, labelled=labelled)}, {}, {}
    scores = evaluate_several(several, path, parent, labelled=labelled)
    changed = scores.get("changed_queries", dict.fromkeys(names[1:]))  # none without documents
    return (
        dict(zip(names, scores["models"].values(), strict=True)),
        dict(zip(names[1:], scores["differences"].values(), strict=True)),
        dict(zip(names[1:], changed.values(), strict=True)),
    )


def save_model(chosen: Contender, folder: Path) -> None:
    """Write model/: a copy of the chosen model folder, or the untouched encoder."""
    shutil.rmtree(folder, ignore_errors=True)
    if Path(chosen.model, RESULT_FILE).is_file() or chosen.name != UNTOUCHED:
        with atomic_folder(folder) as partial:
            ignored = shutil.ignore_patterns(RESULT_FILE)
            shutil.copytree(chosen.model, partial, dirs_exist_ok=True, ignore=ignored)
        return
    readout = SAVED_READOUTS.get(chosen.readout or "")
    SentenceEncoder.from_pretrained(chosen.model, readout=readout).save_pretrained(folder)


def complete_model(model: Path, result: Mapping[str, Any]) -> None:
    """Add the scores before and after to the card of model/, and its weights of keyword search."""
    rows = table_rows(result)
    add_scores(model, [Score(n, float(b), float(a)) for n, b, a, *_ in rows])
    if weights := keyword_weights(result):
        save_keyword_weights(model, *weights)
