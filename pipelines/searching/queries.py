"""Encode queries with the model, template and readout that made an embeddings folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder.locations import MLFLOW_SCHEMES, locate_encoder, model_digest
from cotbert_core.encoder.pooling_files import resolve_pooling_config
from cotbert_core.errors import UserError
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.template_texts import Template, resolve_template
from pipelines.embedding.embeddings import Embeddings
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.progress import say
from pipelines.searching.opened_index import OpenedIndex


def query_vectors(
    embeddings: Embeddings | OpenedIndex,
    encoder: SentenceEncoder,
    texts: Sequence[str],
    precision: Precision = "auto",
) -> np.ndarray:
    """Return (Q, D) float32 vectors of (Q,) texts. encoder: from query_encoder."""
    vectors = encoder.encode(list(texts), precision=precision)
    # Embeddings may have been cut to their leading dimensions; cosines need no others.
    return vectors[:, : embeddings.dimension]


def query_encoder(
    embeddings: Embeddings | OpenedIndex, model: str | None = None, template: str | None = None
) -> SentenceEncoder:
    """Return the encoder that made the embeddings, with the same readout; UserError for another.

    model: where it is now, if not where the manifest says. template: for queries; None: the
    model's own.
    """
    manifest = embeddings.manifest
    name = fetch_model(model or _locate_model(manifest))
    _check_digest(embeddings, name, model is not None)
    encoder = SentenceEncoder.from_pretrained(name, **_pooling_arguments(name, manifest))
    # The number of dimensions before `embed` cut them, if it did.
    dimension = manifest.get("truncated_from", embeddings.dimension)
    if encoder.dimension != dimension:
        raise UserError(
            f"model {name!r} gives vectors of {encoder.dimension} dimensions and the embeddings "
            f"have {dimension}: give the model that made them with --model"
        )
    if template is not None:
        return encoder.with_template(resolve_template(template))
    if (own := encoder.pooling.query) is not None:
        say(f"the queries get the model's prompt for queries, {own.text!r}")
    return encoder.for_queries or encoder


def _locate_model(manifest: dict[str, Any]) -> str:
    """Return the model that the manifest names, or its MLflow address if it is no longer cached."""
    name = str(manifest["model"])
    if not Path(name).is_absolute() or Path(name).exists():
        return name
    source = str(manifest.get("model_source", ""))
    if source.startswith(MLFLOW_SCHEMES):  # not a path, which is that of the missing folder
        return source
    raise UserError(
        f"model {name!r}, which made the embeddings, does not exist any more: give its new place "
        "with --model"
    )


def _check_digest(embeddings: Embeddings | OpenedIndex, name: str, by_user: bool) -> None:
    """Raise UserError if the weights differ from the weights that made the embeddings.

    by_user: whether the user named the model. `embed` records no digest of a hub model.
    """
    made_by = embeddings.manifest.get("model_digest")
    if made_by is None:
        if by_user and name != embeddings.manifest["model"]:
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


def _pooling_arguments(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the template and readout to request; nothing if the model's own are the manifest's.

    Requesting a template would drop what the model stores with its own: head, denoising and longest
    sentence.
    """
    pooling = resolve_pooling_config(name)
    stored = {
        "template": pooling.template and pooling.template.text,
        "readout": pooling.readout,
        "denoise": pooling.denoise,
        "head": pooling.head,
        "full_stop": pooling.full_stop,
    }
    if all(manifest.get(key, value) == value for key, value in stored.items()):
        return {}
    template, own = manifest.get("template"), pooling.template
    if template is None and own is not None and not own.stages:
        template = Template.slot  # an earlier version left the prompt out with another readout
    return {"template": template, "readout": manifest.get("readout")}
