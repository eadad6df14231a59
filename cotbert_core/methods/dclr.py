"""DCLR (Zhou et al., ACL 2022): SimCSE with noise vectors as negatives, without false negatives.

Random vectors lie outside the narrow cone of an encoder's own vectors, so they are moved towards
the sentences before they become negatives (section 4.1). Sentences that a frozen encoder, the
complement, finds similar are not negatives of each other (section 4.2). Letters: b rows of this
worker, B rows of the global batch, K noise vectors, D hidden size.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.losses import info_nce
from cotbert_core.method_settings.baselines import DclrSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.frozen_encoders import open_frozen, similarities
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import gather, gather_with_gradient, rank


class Dclr(WithoutTemplate):
    """DCLR without labels. The complement is frozen and not part of a checkpoint.

    The loss is the paper's cross-entropy, with the positive in the denominator as in SimCSE; the
    released code adds -log(1 - p) for each negative and gives a false negative the logit 0 instead
    of masking it. As there, noise is never masked, since the complement has no vector for it.
    """

    method: DclrSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        name = self.method.complement
        self.complement = None if name is None else open_frozen("complement", name, backbone)

    def forward(self, batch: Batch) -> MethodOutput:
        first, second = self.vectors(batch.sentences, batch.sentences)
        start, exclude = len(first) * rank(), None
        parts = {"positive_cosine": mean_cosine(first, second)}
        noise = self._noise(first.detach())
        if self.complement is not None:
            similar, work = similarities(self.complement, batch.sentences, self.settings.precision)
            self.work += work
            false = false_negatives(similar, self.method.threshold, start)
            parts["left_out"] = false.float().mean()
            exclude = F.pad(false, (0, len(noise)))
        # The columns after the positives are negatives of every row.
        columns = torch.cat([gather_with_gradient(second), noise])
        with record_function("loss"):
            loss = info_nce(
                first, columns, temperature=self.temperature, first=start, exclude=exclude
            )
        return MethodOutput(loss, parts)

    def _noise(self, anchors: Tensor) -> Tensor:
        """Return this step's noise vectors (K, D), the same ones on every worker.

        anchors: (b, D), without gradient.
        """
        count = round(self.method.noise * self.settings.batch_size)
        drawn = gaussian(count, anchors.shape[1], self.settings.seed, self.step)
        noise = to_device(torch.from_numpy(drawn), anchors.device)
        with record_function("loss"):
            return moved_noise(
                noise,
                gather(anchors),
                temperature=self.temperature,
                steps=self.method.noise_steps,
                step_size=self.method.noise_step_size,
            )


def gaussian(count: int, size: int, seed: int, step: int) -> np.ndarray:
    """Return (count, size) float32 from N(0, 1), which depend only on seed and step.

    Cosines do not depend on the deviation: halving it equals doubling `noise_step_size`.
    """
    return np.random.default_rng([seed, step]).standard_normal((count, size), np.float32)


def moved_noise(
    noise: Tensor, anchors: Tensor, *, temperature: float, steps: int, step_size: float
) -> Tensor:
    """Return noise vectors (K, D) after some steps of gradient ascent, each of length step_size.

    It maximises the mean over anchors i of log sum_k a(i, k), the non-uniformity loss without its
    constant (section 4.1; the released code includes the positives in the sum). noise: (K, D).
    anchors: (B, D).
    """
    with torch.autocast(noise.device.type, enabled=False):
        anchors = F.normalize(anchors.to(noise.dtype), dim=1)
        for _ in range(steps):
            units = F.normalize(noise, dim=1)
            similar = anchors @ units.T
            weights = (similar / temperature).softmax(dim=1)
            # The gradient up to a factor of each row, which the normalization cancels.
            gradient = weights.T @ anchors - (weights * similar).sum(dim=0)[:, None] * units
            noise = noise + step_size * F.normalize(gradient, dim=1)
        return noise


def false_negatives(similar: Tensor, threshold: float, first: int = 0) -> Tensor:
    """Return the mask (b, B), True for sentences that are false negatives of a row.

    A row's own positive is never masked (section 4.2). similar: (b, B) the complement's cosines.
    first: the column of row 0.
    """
    false = similar >= threshold
    false.diagonal(first).fill_(False)
    return false
