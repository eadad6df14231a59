"""DiffCSE (Chuang et al., NAACL 2022): the sentence vector helps to detect replaced tokens.

A frozen masked language model, the generator, fills masks in the sentence. A second encoder, the
discriminator, reads the result with the sentence vector in place of [CLS] and classifies the tokens
as original or replaced (section 2, equations 2 and 3). InfoNCE is the other part of the loss.
Letters: b rows of this worker, B of the global batch, T tokens of all rows, L longest row in
tokens, D hidden size.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function

from cotbert_core.encoder.attention import without_cudnn
from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.forward import attention_mask, hidden_at
from cotbert_core.encoder.length_batches import length_batches
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.losses import info_nce
from cotbert_core.method_settings.baselines import DiffCseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import View, mean_cosine, train_budget
from cotbert_core.methods.frozen_encoders import of_setting, require_tokenizer
from cotbert_core.methods.mlm import HEAD_TOKENS
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import Rows
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import gather_with_gradient, rank, sums, world_size
from cotbert_core.training.flops import Work, encoder_flops
from cotbert_core.training.gradient_cache import recomputed
from cotbert_core.training.masking import Masking


class DiffCse(WithoutTemplate):
    """DiffCSE without labels. Head and discriminator are dropped after training."""

    method: DiffCseSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        with of_setting("generator"):
            generator = load_backbone(self.method.generator or backbone.name)
            require_tokenizer(generator, backbone)
            # In a tuple, which keeps the weights out of the checkpoints.
            self.generator = (generator, load_mlm_head(generator))
        tokens = len(backbone.tokenizer.hf)
        self.masking = Masking(self.method.mask_share, self.require_mask(), tokens)
        self.head = NormalizedHead(backbone.hidden_size)
        self.discriminator = Discriminator(backbone, settings.mini_batch_size)

    def forward(self, batch: Batch) -> MethodOutput:
        raw = [v for v, _ in self.encode([View(self.bare, batch.sentences)] * 2)]
        # The head normalizes over the vectors of all workers.
        first, second = self.head(torch.cat([gather_with_gradient(v) for v in raw])).chunk(2)
        own = slice(len(batch) * rank(), len(batch) * (rank() + 1))
        with record_function("loss"):
            contrast = info_nce(first[own], second, temperature=self.temperature, first=own.start)
        with record_function("decoder"):
            detection = self._detection(batch.sentences, first[own])
        parts = {
            "positive_cosine": mean_cosine(first[own], second[own]),
            "contrastive": contrast,
            "detection": detection,
        }
        return MethodOutput(contrast + self.method.detection_weight * detection, parts)

    def _detection(self, sentences: Ragged, vectors: Tensor) -> Tensor:
        """Return the discriminator's scalar mean loss over the tokens of all workers.

        vectors: (b, D).
        """
        original = self.bare.wrap(sentences)
        lengths = original.lengths.numpy()
        self.work += Work(flops=encoder_flops(self.discriminator.encoder, lengths))
        total: Tensor = self.discriminator(self.edited(sentences), original, vectors)
        return total * world_size() / sums([float(lengths.sum())])[0]

    @torch.no_grad()
    def edited(self, sentences: Ragged) -> Tensor:
        """Return the ids (b, L) of rows with masks filled by the generator's first choices."""
        masked = self.masking.only_masks(sentences, self.settings.seed, self.step)
        backbone, head = self.generator
        rows = self.bare.wrap(masked.ids)
        flops = encoder_flops(backbone.model, rows.lengths.numpy(), backward=False)
        self.work += Work(flops=flops)
        at_mask = rows.ids == self.masking.mask_id
        hidden, order = hidden_at(backbone, rows, at_mask, *train_budget(backbone.device))
        chosen = [head(piece).argmax(dim=-1) for piece in torch.split(hidden, HEAD_TOKENS)]
        places = to_device(at_mask.flatten().nonzero().squeeze(1)[order], backbone.device)
        ids = to_device(rows.ids, backbone.device)
        return ids.flatten().index_copy(0, places, torch.cat(chosen)).view_as(ids)


class NormalizedHead(nn.Module):
    """Two layers with batch normalization, as in the released code: (N, D) -> (N, D).

    It always uses the statistics of the N vectors, since the head is only used in training.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inward = nn.Linear(size, 2 * size, bias=False)
        self.norm = nn.BatchNorm1d(2 * size, track_running_stats=False)
        self.outward = nn.Linear(2 * size, size, bias=False)
        self.last = nn.BatchNorm1d(size, affine=False, track_running_stats=False)
        for layer in (self.inward, self.outward):
            nn.init.normal_(layer.weight, std=0.02)

    def forward(self, vectors: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.inward(vectors)))
        normalized: Tensor = self.last(self.outward(hidden))
        return normalized


class Discriminator(nn.Module):
    """A copy of an encoder with a layer that scores each token as original or replaced."""

    def __init__(self, backbone: Backbone, mini_batch_size: int | None) -> None:
        super().__init__()
        self.mini_batch_size = mini_batch_size
        self.encoder = copy.deepcopy(backbone.model)
        self.detector = nn.Linear(backbone.hidden_size, 2)
        self._mask = partial(attention_mask, replace(backbone, model=self.encoder))

    def forward(self, edited: Tensor, original: Rows, vectors: Tensor) -> Tensor:
        """Return the scalar sum of the cross-entropies of all tokens, special ones included.

        edited: (b, L) ids of the original rows, some of them replaced. vectors: (b, D). Both are on
        the encoder's device, for which the host does not wait.
        """
        device, most = vectors.device, self.mini_batch_size
        before = to_device(original.ids, device)
        total = torch.zeros((), device=device)
        batches = length_batches(original.lengths.numpy(), *train_budget(device), most)
        loss = partial(recomputed, self._loss, device=device) if most else self._loss
        for chosen, width in batches:
            attended = torch.arange(width) < original.lengths[chosen, None]
            rows = to_device(chosen, device)
            ids = edited.index_select(0, rows)[:, :width]
            replaced = ids != before.index_select(0, rows)[:, :width]
            wanted = replaced.long().masked_fill(to_device(~attended, device), -100)
            mask = self._mask(attended)
            mask = None if mask is None else to_device(mask, device)
            total = total + loss(ids, mask, vectors.index_select(0, rows), wanted)
        return total

    def _loss(self, ids: Tensor, mask: Tensor | None, vectors: Tensor, wanted: Tensor) -> Tensor:
        """Return the summed cross-entropy of n rows (n, L), with vectors (n, D) in [CLS]'s place.

        wanted: (n, L) 1 at a replaced token, 0 at another, -100 at padding.
        """

        def with_vectors(_: nn.Module, __: object, embedded: Tensor) -> Tensor:
            return torch.cat([vectors[:, None].to(embedded.dtype), embedded[:, 1:]], dim=1)

        embeddings = self.encoder.embeddings
        with embeddings.register_forward_hook(with_vectors), without_cudnn(ids.device):
            hidden = self.encoder(ids, attention_mask=mask).last_hidden_state
        return F.cross_entropy(self.detector(hidden).float().mT, wanted, reduction="sum")
