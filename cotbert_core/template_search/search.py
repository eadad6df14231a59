"""Scoring many templates on the same graded pairs, whose sentences are tokenized once.

Letters: N pairs, S distinct sentences, D size of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.evaluation.pairs import Pairs, cosines, spearman
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.template_texts import Template
from cotbert_core.templates.tokenizing import end_with_full_stop


@dataclass(frozen=True)
class TokenizedPairs:
    """N graded pairs of S distinct sentences in token ids.

    left, right: (N,) sentence numbers. gold: (N,) grades.
    """

    sentences: Ragged
    left: np.ndarray
    right: np.ndarray
    gold: np.ndarray

    def __len__(self) -> int:
        return len(self.gold)


def tokenize_pairs(backbone: Backbone, pairs: Pairs) -> TokenizedPairs:
    """Return graded pairs in token ids, for use in any template.

    As in the papers' evaluation a full stop is added, and sentences are only cut to the encoder's
    own limit.
    """
    number = {s: i for i, s in enumerate(dict.fromkeys([*pairs.left, *pairs.right]))}
    texts = [end_with_full_stop(" ".join(s.split())) for s in number]
    return TokenizedPairs(
        sentences=backbone.tokenizer(texts, backbone.max_tokens),
        left=np.array([number[s] for s in pairs.left], np.int64),
        right=np.array([number[s] for s in pairs.right], np.int64),
        gold=pairs.gold,
    )


def encoder_for(backbone: Backbone, template: Template) -> SentenceEncoder:
    """Return an encoder that reads the template's last mask.

    Raises UserError for a template that does not fit the tokenizer or the encoder's token limit.
    """
    return SentenceEncoder(backbone, PoolingConfig("mask", template, full_stop=True))


@torch.inference_mode()
def score_template(
    backbone: Backbone, pairs: TokenizedPairs, template: Template, precision: Precision = "auto"
) -> float:
    """Return the Spearman x 100 of a template; NaN if all cosines are equal.

    It equals `score_pairs` for a SentenceEncoder with this template. Raises UserError as
    `encoder_for` does.
    """
    encoder = encoder_for(backbone, template)
    vectors = encoder.vectors(pairs.sentences, precision=precision).cpu().numpy()
    return spearman(cosines(vectors[pairs.left], vectors[pairs.right]), pairs.gold)
