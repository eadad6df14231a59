"""ConSERT (Yan et al., ACL 2021): two augmented views of a sentence, without dropout.

One view shuffles the tokens' positions, the other cuts off features of the embeddings (section 3.2;
this combination was the best, section 5.2). Each view's positive is the other, and its negatives
are both views of all other sentences.
Letters: N sentences, L longest row in tokens, b rows of this worker, D hidden size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.losses import nt_xent
from cotbert_core.method_settings.baselines import ConSertSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import gather_with_gradient, rank
from cotbert_core.training.token_numbers import TokenNumbers

# The first `draw` (token_numbers) of a row's features; those of its positions come before.
FEATURES = 2**20


class ConSert(WithoutTemplate):
    """ConSERT without labels. Vectors are contrasted without a head."""

    method: ConSertSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.head = None

    @property
    def position_setting(self) -> str | None:
        return "method.shuffle=true" if self.method.shuffle else None

    def forward(self, batch: Batch) -> MethodOutput:
        first, second = self._views(batch.sentences)
        with record_function("loss"):
            loss = nt_xent(
                first,
                second,
                gather_with_gradient(first),
                gather_with_gradient(second),
                temperature=self.temperature,
                first=len(first) * rank(),
            )
        return MethodOutput(loss, {"positive_cosine": mean_cosine(first, second)})

    def _views(self, sentences: Ragged) -> tuple[Tensor, ...]:
        """Return the vectors (b, D) of each view of the sentences."""
        rows = self.bare.wrap(sentences)
        numbers = TokenNumbers(sentences, self.settings.seed, self.step)
        changed = rows, rows
        if self.method.shuffle:
            positions = shuffled_positions(numbers, rows.lengths.numpy())
            changed = replace(rows, positions=torch.from_numpy(positions)), rows
        if self.method.cutoff:
            # ALBERT and ELECTRA have smaller embeddings than hidden states.
            size = self.encoder.get_input_embeddings().weight.shape[1]
            features = torch.from_numpy(kept_features(numbers, self.method.cutoff, size))
            changed = changed[0], replace(rows, features=features)
        return self._encode_rows(changed)


def shuffled_positions(numbers: TokenNumbers, lengths: np.ndarray) -> np.ndarray:
    """Return (N, L) positions, shuffled within each row.

    As in the released code, special tokens are shuffled too. lengths: (N,) tokens.
    """
    width = int(lengths.max(initial=0))
    drawn = numbers.of_columns(width, 0)
    drawn[np.arange(width) >= lengths[:, None]] = 1
    return np.argsort(drawn, axis=1, kind="stable")


def kept_features(numbers: TokenNumbers, share: float, size: int) -> np.ndarray:
    """Return (N, size) float32: 0 for a share of each row's features, rounded down, else 1."""
    order = np.argsort(numbers.of_columns(size, FEATURES), axis=1, kind="stable")
    kept = np.ones(order.shape, np.float32)
    np.put_along_axis(kept, order[:, : int(share * size)], 0, axis=1)
    return kept
