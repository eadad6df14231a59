"""The encoder of a query: the very model, template and readout that made an embeddings folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder.backbone import locate_encoder
from cotbert_core.encoder.pooling_config import resolve_pooling_config
from cotbert_core.errors import UserError
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from pipelines.embed import model_digest
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.progress import say
from pipelines.searching.embeddings import Embeddings


def query_vectors(
    embeddings: Embeddings,
    texts: Sequence[str],
    model: str | None = None,
    precision: Precision = "auto",
) -> np.ndarray:
    """(Q,) texts -> (Q, D) float32, encoded as the folder's rows were.

    model: where the model lies now, if not where the manifest says. UserError for a text that is
    empty, and for a model that is not the one that made the folder.
    """
    check_texts(texts)
    encoder = query_encoder(embeddings, model)
    vectors = encoder.encode(list(texts), precision=precision)
    # Embeddings may have been cut to their first dimensions; a cosine asks for no more.
    return vectors[:, : embeddings.dimension]


def check_texts(texts: Sequence[str]) -> None:
    """UserError for a text that is empty."""
    for number, text in enumerate(texts, start=1):
        if not text.split():
            raise UserError(f"query {number} is {text!r}, an empty text: give words to look for")


def query_encoder(embeddings: Embeddings, model: str | None = None) -> SentenceEncoder:
    """The encoder that made the embeddings, read as it was then; UserError for another."""
    manifest = embeddings.manifest
    name = fetch_model(model or _where_it_is(manifest))
    _check_digest(embeddings, name, model is not None)
    encoder = SentenceEncoder.from_pretrained(name, **_reading(name, manifest))
    # What they had before `embed` cut them to the first dimensions, if it did.
    dimension = manifest.get("truncated_from", embeddings.dimension)
    if encoder.dimension != dimension:
        raise UserError(
            f"model {name!r} gives vectors of {encoder.dimension} dimensions and the embeddings "
            f"are of {dimension}: give the model that made them with --model"
        )
    return encoder


def _where_it_is(manifest: dict[str, Any]) -> str:
    """The model that the manifest names; its address in MLflow where the cache has lost it."""
    name = str(manifest["model"])
    if not Path(name).is_absolute() or Path(name).exists():
        return name
    if source := manifest.get("model_source"):
        return str(source)
    raise UserError(
        f"model {name!r}, which made the embeddings, is not there any more: say with --model "
        "where it is now"
    )


def _check_digest(embeddings: Embeddings, name: str, told: bool) -> None:
    """UserError where the weights are others than those that made the embeddings.

    told: the user named the model. Of a hub's name `embed` records no digest.
    """
    made_by = embeddings.manifest.get("model_digest")
    if made_by is None:
        if told and name != embeddings.manifest["model"]:
            say(
                f"the embeddings do not record the weights of {embeddings.manifest['model']!r}, "
                f"which made them: whether {name!r} is the same is not checked"
            )
        return
    found = model_digest(locate_encoder(name))
    if found != made_by:
        has = f"digest {found}" if found else "no folder to compare"
        raise UserError(
            f"model {name!r} is not the one that made the embeddings (it has {has}, theirs is "
            f"{made_by}): name that one with --model, or embed again"
        )


def _reading(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Template and readout to ask for; nothing where the model's own are those of the manifest.

    To ask for a model's own template would drop what it remembers beside it: its head, denoising
    and longest sentence.
    """
    own = resolve_pooling_config(name)
    remembered = {
        "template": own.template and own.template.text,
        "readout": own.readout,
        "denoise": own.denoise,
        "head": own.head,
    }
    if all(manifest.get(key, value) == value for key, value in remembered.items()):
        return {}
    return {"template": manifest.get("template"), "readout": manifest.get("readout")}
