"""Readouts of the untrained encoder, by the name of their entry; two are fitted to the corpus."""

from __future__ import annotations

import numpy as np

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.readouts import build_features
from cotbert_core.readouts.flow import Flow, check_flow_sample
from cotbert_core.readouts.whitening import Whitening, check_sample
from cotbert_core.settings import TrainSettings
from pipelines.storage.corpus import Corpus

WHITENING, FLOW = "whitening", "flow"
# The entries that map the first-last average, and the number of sentences to which they are fitted.
FITTED = (WHITENING, FLOW)
SAMPLE = 10_000


def check_untrained(name: str, settings: TrainSettings, corpus: Corpus) -> None:
    """Raise UserError for a readout that needs another encoder or a larger corpus."""
    backbone = load_backbone(settings.encoder)
    sample = min(len(corpus), SAMPLE)
    if name == WHITENING:
        check_sample(sample, backbone.hidden_size)
    elif name == FLOW:
        check_flow_sample(sample)
    else:
        build_features(name, backbone)


def untrained_readout(name: str, settings: TrainSettings, corpus: Corpus) -> Encode:
    """Return the readout as a function of sentences."""
    backbone = load_backbone(settings.encoder)
    if name not in FITTED:
        return build_features(name, backbone, precision=settings.precision)
    plain = build_features("first-last", backbone, precision=settings.precision)
    texts = list(corpus.texts().values())
    rows = np.random.default_rng(0).permutation(len(texts))[:SAMPLE]
    vectors = plain([texts[row] for row in rows])
    fitted = Whitening.fit(vectors) if name == WHITENING else Flow.fit(vectors)
    return lambda sentences: fitted.apply(plain(sentences))
