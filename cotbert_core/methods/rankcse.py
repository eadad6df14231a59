"""RankCSE (Liu et al., ACL 2023): SimCSE with rankings distilled from teachers.

It adds to InfoNCE the consistency of the two views' rankings (section 4.2) and the distillation of
the rankings of one or two teachers (section 4.3).
Letters: b rows of this worker, B rows of the global batch, D hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.errors import UserError
from cotbert_core.losses import cosines, info_nce
from cotbert_core.method_settings.baselines import RankCseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.frozen_encoders import open_frozen, similarities
from cotbert_core.methods.ranking_losses import list_mle, list_net, ranking_consistency
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import gather_with_gradient, rank
from cotbert_core.training.step_timer import section


class RankCse(WithoutTemplate):
    """RankCSE without labels. The teachers are frozen and not part of a checkpoint."""

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        assert isinstance(settings.method, RankCseSettings)
        self.method = settings.method
        if self.method.teacher is None:
            raise UserError(
                "method.teacher is null and method rankcse learns from a teacher: give --set "
                "method.teacher=ENCODER, for example the model/ of a run of simcse-base"
            )
        names = [self.method.teacher, self.method.second_teacher]
        self.teachers = tuple(
            open_frozen("teacher", name, backbone) for name in names if name is not None
        )

    def forward(self, batch: Batch) -> MethodOutput:
        first, second = self.vectors(batch.sentences, batch.sentences)
        columns = gather_with_gradient(second)
        own = slice(len(first) * rank(), len(first) * (rank() + 1))
        wanted = self._ranking(batch.sentences)
        with section("loss"):
            contrast = info_nce(first, columns, temperature=self.temperature, first=own.start)
            similar = cosines(first, columns)
            turned = cosines(second, gather_with_gradient(first))
            consistency = ranking_consistency(similar, turned, self.temperature)
            distillation = self._distillation(similar, wanted)
        loss = (
            contrast
            + self.method.consistency_weight * consistency
            + self.method.distillation_weight * distillation
        )
        parts = {"contrastive": contrast, "consistency": consistency, "distillation": distillation}
        detached = {name: part.detach() for name, part in parts.items()}
        return MethodOutput(loss, {"positive_cosine": mean_cosine(first, second), **detached})

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
