"""A sentence vector from the tokens that the mask predicts (PromptBERT section 4.1, eq. 3).

Letters: N sentences, V vocabulary size, D hidden size, k tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.readouts.mask_predictions import check_top
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.template_texts import TEMPLATES, Template, resolve_template
from cotbert_core.templates.tokenizing import is_byte_level

# Number of sentences whose logits are in memory at once: 256 x 50,000 floats take 50 MB.
LOGIT_ROWS = 256


class TopTokenFeatures:
    """A function from N sentences to (N, D) means of the k most likely tokens' static embeddings.

    The means are weighted by probability. The default template is PromptBERT's manual template for
    the encoder's family. Raises UserError for a checkpoint without a masked-language-model head,
    and unless 1 <= k <= V.
    """

    def __init__(
        self, backbone: Backbone, options: FeatureOptions, precision: Precision = "auto"
    ) -> None:
        self._head = load_mlm_head(backbone).eval()
        # A padded table has rows after the last token.
        tokens = len(backbone.tokenizer.hf)
        self._table = backbone.model.get_input_embeddings().weight[:tokens]
        check_top(options.top_k, len(self._table), "top_k")
        self._top_k, self._precision = options.top_k, precision
        self.template = _template(backbone, options.template)
        pooling = PoolingConfig("mask", self.template, full_stop=True, denoise=options.denoise)
        self._encoder = SentenceEncoder(backbone, pooling)

    @torch.inference_mode()
    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        masks = torch.from_numpy(self._encoder.encode(sentences, precision=self._precision))
        vectors = [
            weighted_top_tokens(self._logits(part), self._table, self._top_k)
            for part in torch.split(masks, LOGIT_ROWS)
        ]
        return np.asarray(torch.cat(vectors).cpu().numpy())

    def _logits(self, masks: Tensor) -> Tensor:
        logits: Tensor = self._head(masks.to(self._table.device))
        return logits[:, : len(self._table)]


def weighted_top_tokens(logits: Tensor, table: Tensor, top_k: int) -> Tensor:
    """Return the vectors (N, D) of eq. (3): the mean embedding of the k most likely tokens.

    logits: (N, V). table: (V, D) static embeddings. The weights are the probabilities of the k
    tokens, scaled to a sum of 1.
    """
    best = torch.topk(logits, top_k, dim=-1)
    # The normalised probabilities of k tokens equal a softmax over their logits.
    weights = torch.softmax(best.values, dim=-1)
    return torch.nn.functional.embedding_bag(
        best.indices, table, per_sample_weights=weights, mode="sum"
    )


def _template(backbone: Backbone, asked: Template | str | None) -> Template:
    if isinstance(asked, Template):
        return asked
    if asked is not None:
        return resolve_template(asked)
    byte_level = is_byte_level(backbone.tokenizer.hf.backend_tokenizer)
    return TEMPLATES["promptroberta/anchor" if byte_level else "promptbert/manual"]
