"""Readouts of the untrained encoder, by the name of their entry; one is whitened by the corpus."""

from __future__ import annotations

import numpy as np

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.readouts import Whitening, build_features
from cotbert_core.readouts.whitening import check_sample
from cotbert_core.settings import TrainSettings
from pipelines.storage.corpus import Corpus

WHITENING = "whitening"
# Number of sentences of the corpus from which the whitening baseline is fitted.
WHITENING_SAMPLE = 10_000


def check_readout(name: str, settings: TrainSettings, corpus: Corpus) -> None:
    """Raise UserError for a readout that needs another encoder or a larger corpus."""
    backbone = load_backbone(settings.encoder)
    if name == WHITENING:
        check_sample(min(len(corpus), WHITENING_SAMPLE), backbone.hidden_size)
    else:
        build_features(name, backbone)


def open_readout(name: str, settings: TrainSettings, corpus: Corpus) -> Encode:
    """Return the readout as a function of sentences."""
    backbone = load_backbone(settings.encoder)
    if name != WHITENING:
        return build_features(name, backbone, precision=settings.precision)
    plain = build_features("first-last", backbone, precision=settings.precision)
    texts = list(corpus.texts().values())
    rows = np.random.default_rng(0).permutation(len(texts))[:WHITENING_SAMPLE]
    whitening = Whitening.fit(plain([texts[row] for row in rows]))
    return lambda sentences: whitening.apply(plain(sentences))
