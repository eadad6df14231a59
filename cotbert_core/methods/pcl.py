"""PCL (Wu et al., EMNLP 2022): a group of diverse positives, contrasted by two networks.

SimCSE's positive is the sentence itself; here further ones have its tokens shuffled or inverted, or
some of them deleted or repeated. Beside SimCSE's InfoNCE, one loss contrasts all positives of a
sentence with the other sentences (peer-positive contrast). A second network starts as a copy of the
first and has the same losses, and two divergences align the similarities of both (peer-network
cooperation). The losses are those of the released code, whose second network is trained by its own
gradient rather than as a moving average; it is dropped after training.
Letters: b rows of this worker, B of the global batch, P positives of a sentence, D hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead
from cotbert_core.losses import cosines, info_nce, paired_cosines
from cotbert_core.method_settings.baselines import PclSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import gather_with_gradient, rank
from cotbert_core.training.token_changes import delete_sampled, invert, repeat_sampled, shuffle
from cotbert_core.training.token_numbers import TokenNumbers

# A function of sentences, numbers of tokens to change (N,) and random numbers of tokens (T,).
Augmentation = Callable[[Ragged, np.ndarray, np.ndarray], Ragged]
AUGMENT: dict[str, Augmentation] = {
    "shuffle": lambda sentences, _, numbers: shuffle(sentences, numbers),
    "invert": lambda sentences, _, __: invert(sentences),
    "delete": delete_sampled,
    "repeat": repeat_sampled,
}


@dataclass(frozen=True)
class Group:
    """A network's vectors.

    sentences: (b, D). positives: (b, P, D); the first of each row is the sentence itself with
    another dropout mask. columns: (B, D) the sentences of all workers.
    """

    sentences: Tensor
    positives: Tensor
    columns: Tensor


class Pcl(WithoutTemplate):
    """PCL without labels. Head and second network are dropped after training."""

    method: PclSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.peer = None
        if self.method.cooperation_weight:
            self.peer = copy.deepcopy(backbone.model)
            # In the released code the second network's vectors pass its pooler and the same head.
            self.pooler = TanhHead(backbone.model.config)
            if (own := getattr(backbone.model, "pooler", None)) is not None:
                # ALBERT's pooler is the layer itself.
                self.pooler.dense.load_state_dict(getattr(own, "dense", own).state_dict())

    def forward(self, batch: Batch) -> MethodOutput:
        texts = [batch.sentences, batch.sentences, *self.augmented(batch.sentences)]
        rows = [self.bare.wrap(text) for text in texts]
        own = self._group(self._encode_rows(rows))
        contrast, group = self._losses(own)
        loss = contrast + self.method.group_weight * group
        parts = {
            "positive_cosine": mean_cosine(own.sentences, own.positives[:, 0]),
            "contrastive": contrast,
            "group": group,
        }
        if self.peer is not None:
            raw = self._encode_rows(rows, backbone=replace(self.backbone, model=self.peer))
            peer = self._group([self.pooler(vectors) for vectors in raw])
            contrast, group = self._losses(peer)
            cooperation = self._cooperation(own, peer)
            loss = loss + contrast + self.method.group_weight * group
            loss = loss + self.method.cooperation_weight * cooperation
            parts["cooperation"] = cooperation
        return MethodOutput(loss, parts)

    def augmented(self, sentences: Ragged) -> list[Ragged]:
        """Return the augmented sentences, one list for each positive but the first."""
        numbers = TokenNumbers(sentences, self.settings.seed, self.step)
        lengths = sentences.lengths
        counts = np.rint(self.method.share * lengths).astype(np.int64)
        counts = np.minimum(counts, np.maximum(lengths - 1, 0))
        names = self.method.augmentations.split(",") * self.method.copies
        changed = (
            AUGMENT[name](sentences, counts, numbers.of_tokens(draw))
            for draw, name in enumerate(names)
        )
        room = self.backbone.max_tokens - self.bare.length
        return [text.cut(room) for text in changed]

    def _group(self, raw: Sequence[Tensor]) -> Group:
        """Return a network's vectors. raw: (b, D) for the sentences and for each positive."""
        sentences, *positives = [self.head(vectors) for vectors in raw]
        return Group(sentences, torch.stack(positives, dim=1), gather_with_gradient(sentences))

    def _losses(self, group: Group) -> tuple[Tensor, Tensor]:
        """Return a network's scalar InfoNCE and group loss."""
        columns, first = gather_with_gradient(group.positives[:, 0]), len(group.sentences) * rank()
        with record_function("loss"):
            contrast = info_nce(group.sentences, columns, temperature=self.temperature, first=first)
            return contrast, group_loss(self._logits(group, group), group.positives.shape[1])

    def _cooperation(self, own: Group, peer: Group) -> Tensor:
        """Return the scalar sum of the divergences within each network and from one to another."""
        with record_function("loss"):
            within = divergence(self._logits(own, own), self._logits(peer, peer))
            return within + divergence(self._logits(own, peer), self._logits(peer, own))

    def _logits(self, left: Group, right: Group) -> Tensor:
        """Return the logits (b, P + B - 1) of one network's sentences with another's vectors."""
        return group_logits(
            left.sentences,
            right.positives,
            right.columns,
            temperature=self.temperature,
            first=len(left.sentences) * rank(),
        )


def group_logits(
    sentences: Tensor, positives: Tensor, columns: Tensor, *, temperature: float, first: int = 0
) -> Tensor:
    """Return (b, P + B - 1) cosines / temperature: to own positives, then to other sentences.

    sentences: (b, D). positives: (b, P, D). columns: (B, D) all sentences. first: the column of
    row 0's sentence; each row leaves out its own column.
    """
    others = cosines(sentences, columns)
    own = torch.arange(first, first + len(others), device=others.device)[:, None]
    places = torch.arange(others.shape[1] - 1, device=others.device)
    others = others.gather(1, places + (places >= own))
    return torch.cat([paired_cosines(sentences[:, None], positives), others], dim=1) / temperature


def group_loss(logits: Tensor, positives: int) -> Tensor:
    """Return the scalar mean binary cross-entropy: 1 for a positive, 0 for another sentence.

    As in the released code, it is the sigmoid of each row's softmax. logits: (b, P + B - 1), those
    of the P positives first.
    """
    shares = F.softmax(logits, dim=1)
    wanted = torch.zeros_like(shares)
    wanted[:, :positives] = 1
    return F.binary_cross_entropy_with_logits(shares, wanted)


def divergence(own: Tensor, peer: Tensor) -> Tensor:
    """Return the scalar mean over all entries of q log(q / p): p of own, q of peer logits.

    own, peer: (b, P + B - 1); both get a gradient. A row's sum is its Kullback-Leibler divergence,
    but the released code also averages over the entries of a row.
    """
    p, q = F.log_softmax(own, dim=1), F.log_softmax(peer, dim=1)
    return F.kl_div(p, q, reduction="none", log_target=True).mean()
