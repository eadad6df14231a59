"""The model card: README.md of a saved folder, as the Hugging Face hub shows it.

It says how the encoder was trained, how vectors are read, what it scored, and how to load it; its
Python blocks run in the folder without changes (a test runs them). Unknown facts are left out. The
card has no paths of the machine, because cards are published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotbert_core.encoder.prompts import DOCUMENT, QUERY
from cotbert_core.files import write_text
from cotbert_core.saving.lineage import (
    BASE_MODEL,
    CARD_FILE,
    base_model,
    first_encoder,
    published_encoder,
)
from cotbert_core.saving.markdown import code, plain, yaml_string
from cotbert_core.saving.model_card_code import (
    ONNX,
    OWN,
    SENTENCE_TRANSFORMERS,
    block,
    serving_line,
    transformers_lines,
)
from cotbert_core.saving.training_metadata import Score, TrainingMetadata
from cotbert_core.templates.template_texts import TEMPLATES

if TYPE_CHECKING:
    from cotbert_core.saving.saved_encoder import SavedEncoder

_SCORES_HEAD = """\
Spearman x 100 against graded pairs, unless the name says otherwise.

| score | before | after |
| --- | --- | --- |
"""
_NO_SCORES = "Not recorded.\n"
_SCORES_END = "<!-- further scores go above this line -->"
# The settings that matter most for the result; the folder's cotbert.json has all settings.
_SETTINGS = (
    *("batch_size", "max_length", "epochs", "max_steps", "dropout", "precision", "seed"),
    *("optimizer.learning_rate", "optimizer.schedule", "optimizer.warmup_steps"),
)


def card_text(saved: SavedEncoder, read_token: str | None, metadata: TrainingMetadata) -> str:
    """Return README.md. read_token: the token that is read; None for the readouts cls and mean."""
    parts = [
        _front_matter(saved),
        _introduction(saved),
        _loading(saved, read_token),
        _section("How it was made", _table(_making(saved))),
        _section("Data", _table(metadata.data) if metadata.data else "Not recorded."),
        _section("Scores", _scores(metadata.scores)),
        _section("Made with", _table(metadata.made)) if metadata.made else "",
        _section("License", _LICENSE),
    ]
    return "\n".join(part for part in parts if part)


def onnx_card(saved: SavedEncoder) -> str:
    """Return the README.md of a folder with an exported ONNX graph."""
    return "\n".join(
        [
            _introduction(saved),
            "## How to run it\n\nIn this folder, with onnxruntime, tokenizers and numpy. The graph "
            "takes any number of texts and tokens; its vectors are finished. The template, the "
            "cutting of long texts and the padding lie in tokenizer.json.\n",
            f"```python\n{ONNX}```\n",
            "The ONNX Runtime image of text-embeddings-inference serves this folder, and fastembed "
            "opens it as a custom model with pooling disabled.\n",
            _section("How it was made", _table(_making(saved))),
            _section("License", _LICENSE),
        ]
    )


def add_scores(folder: Path, scores: Sequence[Score]) -> None:
    """Add later scores to a folder's card; a card without the mark for them is not changed."""
    path = folder / CARD_FILE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if _SCORES_END in text:
        lines = "".join(f"{_score_line(score)}\n" for score in scores)
        before, _, after = text.rpartition(_SCORES_END)  # a template may contain the mark too
        if before.endswith(_NO_SCORES):
            before = before.removesuffix(_NO_SCORES) + _SCORES_HEAD
        write_text(path, before + lines + _SCORES_END + after)


def _front_matter(saved: SavedEncoder) -> str:
    tags = ["sentence-similarity", "feature-extraction", "cotbert"]
    if saved.is_portable:
        tags.insert(0, "sentence-transformers")
    if saved.pooling.method is not None:
        tags.append(saved.pooling.method)
    library = ["library_name: sentence-transformers"] if saved.is_portable else []
    base = base_model(_began_as(saved))
    return "\n".join(
        [
            "---",
            *library,
            "pipeline_tag: sentence-similarity",
            "tags:",
            *(f"- {yaml_string(tag)}" for tag in tags),
            *([f"base_model: {yaml_string(base)}"] if base else []),
            "---",
            "",
        ]
    )


def _began_as(saved: SavedEncoder) -> str:
    """Return the encoder NAME that the first training started from."""
    settings = saved.pooling.settings or {}
    encoder = str(settings.get("encoder", saved.backbone.name))
    return str(settings.get(BASE_MODEL) or first_encoder(encoder))


def _introduction(saved: SavedEncoder) -> str:
    method = saved.pooling.method
    how = f"trained by {plain(method)}" if method else "read as described below"
    return (
        f"# Sentence encoder, {how}\n\n"
        f"Texts to vectors of {saved.backbone.hidden_size} numbers; the cosine of two says how "
        "similar the texts are.\n"
    )


def _loading(saved: SavedEncoder, read_token: str | None) -> str:
    own = block("cotbert_core", OWN)
    served = serving_line(saved.not_served, saved.pooling.denoise == "none")
    if not saved.is_portable:
        why = (
            f"**Only `cotbert_core` reads this folder**: {saved.not_carried}. Its vectors "
            "would be different without that, so sentence-transformers, MLflow's flavour of it and "
            "transformers' tokenizers refuse the folder.\n"
        )
        return f"## How to load it\n\n{why}\n{own}{served}"
    added = ""
    if saved.pooling.template is not None:
        added = "The template lies in the tokenizer"
    elif saved.pooling.full_stop:
        added = "The tokenizer adds the full stop"
    bare = block("transformers", transformers_lines(saved.pooling, read_token))
    if prompts := saved.prompts:
        added = (
            "Encode queries with `model.encode_query` or `encoder.for_queries.encode`, which put "
            f"{code(prompts[QUERY])} before them"
        )
        if prompts[DOCUMENT]:  # which transformers alone would not put before other texts
            bare = ""
    return (
        "## How to load it\n\n"
        "In this folder; elsewhere put its path, or its name on a hub, for `.`. The vectors are "
        f"equal (cosine at least 0.999999 in fp32). {f'{added}; no' if added else 'No'} code of "
        "this folder is run.\n\n"
        + block("sentence-transformers", SENTENCE_TRANSFORMERS)
        + bare
        + own
        + 'In MLflow: `mlflow.sentence_transformers.log_model(SentenceTransformer("."), '
        'name="encoder")`, and `mlflow.pyfunc.load_model` wherever mlflow and '
        f"sentence-transformers are.\n\n{served}"
    )


def _making(saved: SavedEncoder) -> dict[str, Any]:
    """Return the table of method, encoder, templates, readout and the most important settings."""
    pooling, settings = saved.pooling, saved.pooling.settings or {}
    rows: dict[str, Any] = {
        "method": plain(pooling.method or "no training recorded"),
        "encoder": plain(published_encoder(_began_as(saved))),
        **({"template": code(pooling.template.text)} if pooling.template else {}),
        **({"template of queries": code(pooling.query.text)} if pooling.query else {}),
        **{
            f"{role} in training": code(_template_text(str(settings[f"templates.{role}"])))
            for role in ("anchor", "positive", "negative")
            if settings.get(f"templates.{role}")
        },
        "vector": _readout(saved),
        "longest text": f"{saved.max_length} tokens; more are cut off",
    }
    if pooling.full_stop:
        rows["full stop"] = "added to texts that end in none of . ? \" '"
    unused = ("method.name", "epochs" if settings.get("max_steps") else None)
    chosen = [key for key in settings if key in _SETTINGS or key.startswith("method.")]
    rows |= {
        code(k): plain(settings[k]) for k in chosen if settings[k] is not None and k not in unused
    }
    return rows


def _template_text(name: str) -> str:
    return TEMPLATES[name].text if name in TEMPLATES else name


def _readout(saved: SavedEncoder) -> str:
    words = {
        "mask": "last layer at the template's last mask",
        "cls": "last layer at the first token",
        "mean": "mean of the last layer over all tokens",
    }
    parts = [words[saved.pooling.readout]]
    if saved.pooling.denoise != "none":
        parts.append(f"minus the template's bias ({code(saved.pooling.denoise)})")
    if saved.pooling.head is not None:
        parts.append(f"behind a {plain(saved.pooling.head)} head")
    if saved.pooling.normalize:
        parts.append("unit length")
    return ", ".join(parts)


def _scores(scores: Sequence[Score]) -> str:
    lines = "".join(f"{_score_line(score)}\n" for score in scores)
    return (_SCORES_HEAD + lines if scores else _NO_SCORES) + _SCORES_END


def _score_line(score: Score) -> str:
    # The correlation of equal cosines is NaN.
    cells = (
        "" if value is None else "undefined" if math.isnan(value) else f"{value:.2f}"
        for value in (score.before, score.after)
    )
    return f"| {plain(score.name)} | {' | '.join(cells)} |"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}\n"


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {key} | {_cell(value)} |" for key, value in rows.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _cell(value: Any) -> str:
    """Return a value for a table cell, without the line breaks and bars that would end the cell.

    Bars that code() or plain() escaped are not changed.
    """
    return re.sub(r"(?<!\\)\|", r"\|", " ".join(str(value).splitlines()))


_LICENSE = """\
Not chosen yet. The encoder that the training began from and the data have licences of their own:
read them, then name this model's here and as `license:` at the top of this file."""
