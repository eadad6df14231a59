"""Whiten, rank or map vectors by a flow, fitted to a sample of sentences.

Shapes: N sentences, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cotbert_core.errors import counted
from cotbert_core.evaluation.pairs import Encode, EncodeFunctions
from cotbert_core.readouts.flow import Flow, check_flow_sample
from cotbert_core.readouts.ranking import Ranking
from cotbert_core.readouts.whitening import Whitening, check_sample
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.readout_options import OpenReadout, given_transforms
from pipelines.reading.bad_rows import reasons_of
from pipelines.reading.text_files import read_texts
from pipelines.runtime.progress import say

# The name of the scored sentences as the sample.
TASKS = "tasks"


def sample_name(options: EvaluateOptions) -> str | None:
    """Return the name of the sample, or None if vectors are not transformed."""
    return next((getattr(options, name) for name in given_transforms(options)), None)


def sample_file(options: EvaluateOptions) -> tuple[str, ...]:
    """Return the input that the sample is read from, if it is not the scored sentences."""
    name = sample_name(options)
    return () if name in (None, TASKS) else (name,)


def sample_sentences(options: EvaluateOptions, sentences: Sequence[str]) -> list[str] | None:
    """Return the distinct sentences of the sample, None without one. sentences: the scored ones."""
    if not (file := sample_file(options)):
        return None if sample_name(options) is None else list(sentences)
    (name,) = file
    also = () if options.labelled is None else (options.labelled,)
    column = options.text_column or "text"
    texts = read_texts(name, column, options.encoding, options.delimiter, also)
    if texts.dropped:
        read = counted(texts.read, "row")
        say(f"warning: {name}: {read} read, dropped: {reasons_of(texts.dropped)}")
    return list(dict.fromkeys(texts.sentences))


def check_transform(options: EvaluateOptions, sample: list[str], readout: OpenReadout) -> None:
    """Record the size of the sample; UserError if it is too small to fit."""
    if options.whiten is not None:
        check_sample(len(sample), readout.backbone.hidden_size, options.whiten_dimensions)
    if options.flow is not None:
        check_flow_sample(len(sample))
    (name,) = given_transforms(options)
    readout.used[f"{name}_sentences"] = len(sample)


def transformed(
    options: EvaluateOptions, encode: EncodeFunctions, sample: list[str] | None
) -> EncodeFunctions:
    """Return the functions with a transform fitted to the sample, which is encoded once; None: as
    they are."""
    if sample is None:
        return encode
    if sample_name(options) == TASKS:
        encode = replace(encode, texts=Remembered(encode.texts))
    transform: Whitening | Flow | Ranking
    if options.whiten is not None:
        transform = Whitening.fit(encode.texts(sample), options.whiten_dimensions)
    elif options.flow is not None:
        transform = Flow.fit(encode.texts(sample))
    else:
        transform = Ranking.fit(encode.texts(sample))
    return encode.wrapped(lambda plain: lambda sentences: transform.apply(plain(sentences)))


class Remembered:
    """An `encode` with a cache, for sentences that are both in the sample and scored."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        new = [s for s in dict.fromkeys(sentences) if s not in self._vectors]
        if new:
            self._vectors |= zip(new, self._encode(new), strict=True)
        return np.stack([self._vectors[s] for s in sentences])
