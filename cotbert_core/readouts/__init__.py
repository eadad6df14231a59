"""Sentence vectors of an encoder without fine-tuning (PromptBERT sections 3, 4.1 and 6.1).

`FEATURES` maps each readout's name to the function that builds it and the options that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.errors import unknown
from cotbert_core.readouts.flow import Flow
from cotbert_core.readouts.layers import first_and_last
from cotbert_core.readouts.options import FeatureOptions, refuse_unused
from cotbert_core.readouts.ranking import Ranking
from cotbert_core.readouts.static import StaticFeatures
from cotbert_core.readouts.top_tokens import TopTokenFeatures
from cotbert_core.readouts.whitening import Whitening
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision

Features = Callable[[Sequence[str]], np.ndarray]
Counted = Sequence[str] | None
Build = Callable[[Backbone, FeatureOptions, Counted, Precision], Features]


@dataclass(frozen=True)
class Feature:
    """A readout. build: builds it for an encoder. uses: names of the FeatureOptions it uses."""

    build: Build
    uses: frozenset[str] = frozenset()


def _last(backbone: Backbone, _: FeatureOptions, __: Counted, precision: Precision) -> Features:
    return partial(SentenceEncoder(backbone, PoolingConfig("mean")).encode, precision=precision)


def _cls(backbone: Backbone, _: FeatureOptions, __: Counted, precision: Precision) -> Features:
    return partial(SentenceEncoder(backbone, PoolingConfig("cls")).encode, precision=precision)


def _first_last(
    backbone: Backbone, options: FeatureOptions, counted: Counted, precision: Precision
) -> Features:
    return _last(first_and_last(backbone), options, counted, precision)


def _static(
    backbone: Backbone, options: FeatureOptions, counted: Counted, _: Precision
) -> Features:
    return StaticFeatures(backbone, options, counted)


def _top_tokens(
    backbone: Backbone, options: FeatureOptions, _: Counted, precision: Precision
) -> Features:
    return TopTokenFeatures(backbone, options, precision)


FEATURES: dict[str, Feature] = {
    "cls": Feature(_cls),
    "last": Feature(_last),
    "first-last": Feature(_first_last),
    "static": Feature(_static, frozenset({"remove", "frequent"})),
    "top-tokens": Feature(_top_tokens, frozenset({"top_k", "denoise", "template"})),
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


__all__ = [
    "FEATURES",
    "Feature",
    "FeatureOptions",
    "Features",
    "Flow",
    "Ranking",
    "StaticFeatures",
    "Whitening",
    "build_features",
    "refuse_unused",
]
