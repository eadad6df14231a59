"""TSDAE (Wang et al., 2021): a decoder reconstructs a sentence from the vector of a part of it.

It is a baseline: loss and decoder are those of sentence-transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cotbert_core.encoder.attention import without_cudnn
from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.length_batches import padding
from cotbert_core.encoder.locations import locate_encoder
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import own_prompt
from cotbert_core.encoder.pretrained import no_loading_report
from cotbert_core.errors import UserError, missing_packages
from cotbert_core.method_settings.baselines import TsdaeSettings
from cotbert_core.methods.base import Method, MethodOutput
from cotbert_core.methods.without_template import plain_pooling_config
from cotbert_core.saving.model_folder import ONLY_HERE
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate, Rows
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.flops import Work, encoder_flops


class Tsdae(Method):
    """TSDAE: a decoder tied to the encoder reconstructs sentences with deleted tokens."""

    method: TsdaeSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.bare = BoundTemplate.bind(own_prompt(settings.encoder), backbone.tokenizer.hf)
        self.objective = _objective(backbone, self.method.readout)

    def forward(self, batch: Batch) -> MethodOutput:
        damaged = delete_tokens(batch.sentences, self.method.deletion)
        rows = [self.bare.wrap(texts) for texts in (damaged, batch.sentences)]
        # The decoder's work does not count, since it shares the encoder's weights.
        lengths = rows[0].lengths.numpy()
        padded, _ = padding(lengths, None)
        flops = encoder_flops(self.encoder, lengths)
        self.work += Work(tokens=float(lengths.sum()), padding=padded, flops=flops)
        features = [self._features(r) for r in rows]
        with without_cudnn(self.backbone.device):
            return MethodOutput(self.objective(features, None))

    def _features(self, rows: Rows) -> dict[str, Tensor]:
        attended = torch.arange(rows.ids.shape[1]) < rows.lengths[:, None]
        features = {"input_ids": rows.ids, "attention_mask": attended.long()}
        device = self.backbone.device
        return {name: to_device(value, device) for name, value in features.items()}

    @property
    def pooling(self) -> PoolingConfig:
        return plain_pooling_config(self.settings, self.method.readout)


def delete_tokens(sentences: Ragged, deletion: float) -> Ragged:
    """Return sentences in which each token is deleted with a probability of `deletion`.

    Random numbers come from torch's generator. A sentence that would lose all its tokens keeps one.
    """
    lengths = sentences.lengths
    chances = torch.rand(len(sentences.flat)).numpy()
    kept = chances >= deletion
    row = np.repeat(np.arange(len(lengths)), lengths)
    left = np.bincount(row[kept], minlength=len(lengths))
    for empty in np.flatnonzero((left == 0) & (lengths > 0)):
        start, stop = sentences.offsets[empty], sentences.offsets[empty + 1]
        kept[start + int(np.argmax(chances[start:stop]))] = True
    return Ragged.from_lengths(sentences.flat[kept], np.bincount(row[kept], minlength=len(lengths)))


def _objective(backbone: Backbone, readout: str) -> Any:
    """Return sentence-transformers' loss for this encoder's own weights."""
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError:
        raise missing_packages("method tsdae", ["sentence-transformers"], "tsdae") from None
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(backbone.model.config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"encoder {backbone.name!r} is of the family {backbone.model.config.model_type!r}, for "
            "which transformers has no decoder, and method tsdae needs one: use an encoder of "
            "another family, such as bert or roberta"
        )
    tokenizer = Path(locate_encoder(backbone.name)) / "tokenizer.json"
    if tokenizer.is_file() and ONLY_HERE in tokenizer.read_text(encoding="utf-8"):
        raise UserError(
            f"method tsdae opens its encoder with sentence-transformers, which cannot read "
            f"{backbone.name!r} (its README.md says why): train from another encoder"
        )
    device = backbone.device
    with no_loading_report():
        first = Transformer(locate_encoder(backbone.name))
        first.model = backbone.model
        pooling = Pooling(backbone.hidden_size, pooling_mode=readout)
        whole = SentenceTransformer(modules=[first, pooling], device=str(device))
        # The decoder's weights that are not tied to the encoder were loaded on the CPU.
        return DenoisingAutoEncoderLoss(whole).to(device)
