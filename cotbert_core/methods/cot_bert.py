"""CoT-BERT: two-stage templates, template denoising, extended InfoNCE (paper, section 3).

With `denoise: position`, one-mask templates and no negative it is PromptBERT's unsupervised
objective. Letters: b sentences of this worker, D hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cotbert_core.backbone import Backbone, encode_rows
from cotbert_core.denoising import bias_rows
from cotbert_core.distributed import gather_with_gradient, rank
from cotbert_core.losses import extended_info_nce, info_nce
from cotbert_core.methods.base import Method, MethodOutput
from cotbert_core.ragged import Ragged
from cotbert_core.settings import TrainSettings
from cotbert_core.templates import resolve_template
from cotbert_core.wrapping import BoundTemplate, Rows, concatenate_rows

# On a CPU the rows of a step, sorted by length, run in batches of this many tokens: 192 rows of
# unequal length in one batch would spend a quarter of the time on padding.
CPU_TRAIN_TOKENS = 4096


class CotBert(Method):
    """Anchor, positive and hard negative of a sentence are three templates around it."""

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        names = [settings.templates.anchor, settings.templates.positive]
        if settings.templates.negative is not None:
            names.append(settings.templates.negative)
        tokenizer = backbone.tokenizer.hf
        self.templates = [BoundTemplate.bind(resolve_template(n), tokenizer) for n in names]
        self.head = TrainingHead(backbone.hidden_size)

    def forward(self, sentences: Ragged) -> MethodOutput:
        vectors = [self.head(v) for v in self.denoised(sentences)]
        anchor, positive = vectors[0], gather_with_gradient(vectors[1])
        first = len(anchor) * rank()
        temperature = self.settings.method.temperature
        if len(vectors) == 2:
            loss = info_nce(anchor, positive, temperature=temperature, first=first)
        else:
            contrast = extended_info_nce if self.settings.method.extended else info_nce
            negative = gather_with_gradient(vectors[2])
            loss = contrast(anchor, positive, negative, temperature=temperature, first=first)
        return MethodOutput(loss, {"positive_cosine": _mean_cosine(vectors[0], vectors[1])})

    def denoised(self, sentences: Ragged) -> list[Tensor]:
        """For each template (b, D): the mask vector minus the template's bias.

        All rows of the step (three templates, their biases) go through the encoder together,
        sorted by length.
        """
        method = self.settings.method
        filled = [template.wrap(sentences) for template in self.templates]
        if method.denoise == "none":
            return list(self._encode(filled))
        biases = [
            bias_rows(
                self.backbone, template, sentences.lengths, method.denoise, method.pad_positions
            )
            for template in self.templates
        ]
        empty = [rows for rows, _ in biases]
        if method.freeze_bias:
            with torch.no_grad():
                bias_vectors = self._encode(empty)
            vectors = self._encode(filled)
        else:
            both = self._encode(filled + empty)
            vectors, bias_vectors = both[: len(filled)], both[len(filled) :]
        return [
            vector - bias[torch.from_numpy(which).to(bias.device)]
            for vector, bias, (_, which) in zip(vectors, bias_vectors, biases, strict=True)
        ]

    def _encode(self, parts: list[Rows]) -> tuple[Tensor, ...]:
        rows = concatenate_rows(parts, self.templates[0].pad_id)
        budget = CPU_TRAIN_TOKENS if self.backbone.device.type == "cpu" else None
        vectors = encode_rows(self.backbone, rows, "mask", budget)
        return torch.split(vectors, [len(p) for p in parts])


class TrainingHead(nn.Module):
    """(b, D) -> (b, D): dense and tanh, used in training and dropped at inference."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(size, size)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        return torch.tanh(self.dense(vectors))


def _mean_cosine(left: Tensor, right: Tensor) -> Tensor:
    return torch.cosine_similarity(left.detach().float(), right.detach().float()).mean()
