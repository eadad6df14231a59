"""RankCSE (Liu et al., ACL 2023): SimCSE with rankings distilled from teachers.

It adds to InfoNCE the consistency of the two views' rankings (section 4.2) and the distillation of
the rankings of one or two teachers (section 4.3).
Letters: b rows of this worker, B rows of the global batch, D hidden size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.errors import UserError
from cotbert_core.losses import cosines, info_nce
from cotbert_core.method_settings.baselines import RankCseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.frozen_encoders import open_frozen, similarities
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import gather_with_gradient, rank


class RankCse(WithoutTemplate):
    """RankCSE without labels. The teachers are frozen and not part of a checkpoint."""

    method: RankCseSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        if not self.method.distillation_weight:
            self.teachers: tuple[SentenceEncoder, ...] = ()
            return
        if self.method.teacher is None:
            raise UserError(
                "method.teacher is null and method rankcse learns from a teacher: give --set "
                "method.teacher=ENCODER, for example the model/ of a run of simcse-base"
            )
        names = {"teacher": self.method.teacher, "second_teacher": self.method.second_teacher}
        self.teachers = tuple(
            open_frozen(setting, name, backbone)
            for setting, name in names.items()
            if name is not None
        )

    def forward(self, batch: Batch) -> MethodOutput:
        first, second = self.vectors(batch.sentences, batch.sentences)
        columns = gather_with_gradient(second)
        own = slice(len(first) * rank(), len(first) * (rank() + 1))
        wanted = self._ranking(batch.sentences) if self.teachers else None
        with record_function("loss"):
            contrast = info_nce(first, columns, temperature=self.temperature, first=own.start)
            similar = cosines(first, columns)
            turned = cosines(second, gather_with_gradient(first))
            consistency = ranking_consistency(similar, turned, self.temperature)
            loss = contrast + self.method.consistency_weight * consistency
            parts = {
                "positive_cosine": mean_cosine(first, second),
                "contrastive": contrast,
                "consistency": consistency,
            }
            if wanted is not None:
                parts["distillation"] = self._distillation(similar, wanted)
                loss = loss + self.method.distillation_weight * parts["distillation"]
        return MethodOutput(loss, parts)

    def _distillation(self, student: Tensor, teacher: Tensor) -> Tensor:
        temperature = self.method.student_temperature
        if self.method.distillation == "listmle":
            return list_mle(student, teacher, temperature)
        return list_net(student, teacher, temperature, self.method.teacher_temperature)

    def _ranking(self, sentences: Ragged) -> Tensor:
        """Return the teachers' weighted similarities (b, B) of this worker's sentences to all."""
        weights = (self.method.teacher_weight, 1 - self.method.teacher_weight)
        if len(self.teachers) == 1:
            weights = (1.0, 0.0)
        total = torch.zeros((), device=self.backbone.device)
        for weight, teacher in zip(weights, self.teachers, strict=False):
            similar, work = similarities(teacher, sentences, self.settings.precision)
            total = total + weight * similar
            self.work += work
        return total


def ranking_consistency(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return the scalar mean Jensen-Shannon divergence of two views' similarities (section 4.2).

    first, second: (b, B). Each row becomes a distribution by softmax at the temperature; the
    divergence is in nats, 0 for equal rows and at most log 2.
    """
    p, q = (F.log_softmax(view / temperature, dim=1) for view in (first, second))
    middle = torch.logaddexp(p, q) - math.log(2)
    return (_divergence(p, middle) + _divergence(q, middle)) / 2


def list_net(
    student: Tensor, teacher: Tensor, temperature: float, teacher_temperature: float
) -> Tensor:
    """Return the scalar mean cross-entropy of the teacher's softmax and the student's (ListNet).

    student, teacher: (b, B) similarities.
    """
    wanted = F.softmax(teacher / teacher_temperature, dim=1)
    return F.cross_entropy(student / temperature, wanted)


def list_mle(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the scalar mean of -log P(the teacher's order | the student's similarities) / B.

    P is the Plackett-Luce model (ListMLE): the product over ranks of the softmax of the sentence at
    that rank over the remaining ones. student, teacher: (b, B) similarities.
    """
    ranked = torch.gather(student / temperature, 1, teacher.argsort(dim=1, descending=True))
    left = ranked.flip(1).logcumsumexp(dim=1).flip(1)
    return (left - ranked).mean()


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return the scalar mean Kullback-Leibler divergence of rows (b, B) of log-probabilities."""
    return F.kl_div(q, p, reduction="batchmean", log_target=True)
