"""Sentence vectors of an encoder without fine-tuning (PromptBERT sections 3, 4.1 and 6.1).

`FEATURES` maps each readout's name to the function that builds it and the options that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.errors import unknown
from cotbert_core.readouts.layers import FirstAndLast
from cotbert_core.readouts.options import FeatureOptions, refuse_unused
from cotbert_core.readouts.static import StaticFeatures
from cotbert_core.readouts.top_tokens import TopTokenFeatures
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision

Features = Callable[[Sequence[str]], np.ndarray]
Counted = Sequence[str] | None


@dataclass(frozen=True)
class Feature:
    """A readout. build: builds it for an encoder. uses: names of the FeatureOptions it uses."""

    build: Callable[[Backbone, FeatureOptions, Counted, Precision], Features]
    uses: frozenset[str] = frozenset()


def _pooled(backbone: Backbone, readout: str, precision: Precision) -> Features:
    return partial(SentenceEncoder(backbone, PoolingConfig(readout)).encode, precision=precision)


def _first_last(
    backbone: Backbone, _: FeatureOptions, __: Counted, precision: Precision
) -> Features:
    return _pooled(replace(backbone, model=FirstAndLast(backbone.model)), "mean", precision)


FEATURES: dict[str, Feature] = {
    "cls": Feature(lambda backbone, _, __, precision: _pooled(backbone, "cls", precision)),
    "last": Feature(lambda backbone, _, __, precision: _pooled(backbone, "mean", precision)),
    "first-last": Feature(_first_last),
    "static": Feature(
        lambda backbone, options, counted, _: StaticFeatures(backbone, options, counted),
        frozenset({"remove", "frequent_count"}),
    ),
    "top-tokens": Feature(
        lambda backbone, options, _, precision: TopTokenFeatures(backbone, options, precision),
        frozenset({"top_k", "denoise", "template"}),
    ),
}


def build_features(
    name: str,
    backbone: Backbone,
    options: FeatureOptions | None = None,
    counted: Counted = None,
    precision: Precision = "auto",
) -> Features:
    """Return the readout `name` of an encoder: a function from N sentences to (N, D) vectors.

    counted: the sentences in which the most frequent tokens are counted (None: the sentences of
    each call). Raises UserError for an option that the readout does not use.
    """
    if name not in FEATURES:
        raise unknown("readout", name, FEATURES)
    options = options or FeatureOptions()
    refuse_unused(name, options, FEATURES[name].uses)
    return FEATURES[name].build(backbone, options, counted, precision)
