"""The base of the contrastive methods: views of a batch that are encoded together and contrasted.

A view of a sentence is a template (or none) around one of its texts. Letters: b rows of this
worker, B rows of the global batch, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.dropout import has_dropout
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.encoder.length_batches import padding
from cotbert_core.encoder.pooling_files import own_prompt, query_template
from cotbert_core.encoder.prompts import prompt_tokens
from cotbert_core.encoder.template_denoising import shared_bias_rows
from cotbert_core.losses import extended_info_nce, info_nce, same_document
from cotbert_core.method_settings.bases import DenoisedSettings
from cotbert_core.methods.base import Method
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate, Rows, concatenate_rows
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import gather, gather_with_gradient, rank
from cotbert_core.training.flops import Work, encoder_flops

# The rows of a step, sorted by length, run in batches of this many tokens: 192 rows of unequal
# length in one batch would spend a quarter of a CPU's time on padding. A GPU starts a kernel for
# each operation of each batch, so its batches are larger: in a CoT-BERT step of 256 Wikipedia
# sentences 10 % of the tokens are padding with 3 batches and 24 % with one; a step of 64 is one
# batch.
CPU_TRAIN_TOKENS = 4096
CUDA_TRAIN_TOKENS = 16384
# The fixed cost of a batch (a gradient as large as the weights, the start of each operation), as
# the number of tokens that take as long. On 2 CPU cores 128 was the best of 50 to 400: compared
# with as few batches as possible, 64 pairs of a sentence and the rest of its document, of 15 to 130
# tokens, took 0.71 of the time (12 % padding instead of 47 %), a CoT-BERT step of 128 sentences
# 0.95. The value for a GPU is an estimate, not measured: 900 kernels of 4 us at 800,000 tokens/s.
CPU_START_TOKENS = 128
CUDA_START_TOKENS = 3000
# The positives that are the sentence itself.
OF_THE_SENTENCE = ("dropout", "template")


def train_budget(device: torch.device) -> tuple[int | None, int]:
    """Return the batch_tokens and start_tokens (`length_batches`) of a training step's batches."""
    if device.type == "cpu":
        return CPU_TRAIN_TOKENS, CPU_START_TOKENS
    return CUDA_TRAIN_TOKENS, CUDA_START_TOKENS


@dataclass(frozen=True)
class View:
    """A template around each of b texts. Views with equal templates share their bias rows."""

    template: BoundTemplate
    texts: Ragged


class Contrastive(Method):
    """A method with an InfoNCE loss over views.

    `bind_queries`, `positive_role` and `positive_texts` are for methods with PositiveSettings.
    """

    readout = "mask"

    @property
    def temperature(self) -> float:
        return float(self.method.temperature)

    def bind(self, role: str | None) -> BoundTemplate:
        """Return a role's template in token ids; for None the encoder's own prompt, if any."""
        template = self.template(role) if role else own_prompt(self.settings.encoder)
        return BoundTemplate.bind(template, self.backbone.tokenizer.hf)

    def bind_queries(self, texts: BoundTemplate) -> BoundTemplate:
        """Return the template of an anchor whose positive is another text, for which it stands as a
        query does: the encoder's own template of queries, if it has one, else that of its texts.

        Raises UserError for a prompt that the encoder's tokenizer joins with a sentence.
        """
        query = query_template(self.settings.encoder)
        if query is None or self.method.positive in OF_THE_SENTENCE:
            return texts
        prompt_tokens(query, self.backbone.tokenizer, self.backbone.name)
        return BoundTemplate.bind(query, self.backbone.tokenizer.hf)

    def notes(self, columns: Sequence[str]) -> list[str]:
        notes, name = super().notes(columns), self.backbone.name
        if self.position_setting is not None and not self.backbone.reads_positions:
            notes.append(
                f"encoder {name!r} has relative positions alone: the position ids that "
                f"{self.position_setting} changes have no effect"
            )
        rate = self.settings.dropout
        drops = has_dropout(self.encoder) if rate is None else rate > 0
        if drops or not self.needs_dropout(columns):
            return notes
        whose = f"encoder {name!r} has none" if rate is None else f"dropout is {rate}"
        return [
            *notes,
            f"{whose}: without dropout the two views of a sentence are equal and method "
            f"{self.settings.method.name} has little to learn; give --set dropout=0.1",
        ]

    @property
    def position_setting(self) -> str | None:
        """The setting, with its value, by which this method changes position ids, if any."""
        method = self.method
        shifts = isinstance(method, DenoisedSettings) and method.denoise == "position"
        return "method.denoise=position" if shifts else None

    def needs_dropout(self, columns: Sequence[str]) -> bool:
        """Return whether views differ in dropout alone on a corpus with these paired texts."""
        return bool(self.method.needs_dropout)

    @property
    def positive_role(self) -> str:
        """The role of the template around the positives, which is the anchor's for `dropout`."""
        return "anchor" if self.method.positive == "dropout" else "positive"

    def encode(self, views: list[View]) -> list[tuple[Tensor, Tensor | None]]:
        """Return for each view its (b, D) vectors, and the (b, D) biases of its template or None.

        All rows of the step, including bias rows, go through the encoder together, sorted by
        length. Each worker computes its share of the biases that all workers need.
        """
        filled = [view.template.wrap(view.texts) for view in views]
        method = self.method
        if not isinstance(method, DenoisedSettings) or method.denoise == "none":
            return [(vectors, None) for vectors in self._encode_rows(filled)]
        templates = list(dict.fromkeys(view.template for view in views))
        with record_function("bias rows"):
            rows = [self._bias_rows(t, views, method) for t in templates]
        empty, places = zip(*rows, strict=True)
        if method.freeze_bias:
            with torch.no_grad(), record_function("bias rows"):
                biases = self._encode_rows(empty)
            vectors = self._encode_rows(filled)
        else:
            both = self._encode_rows([*filled, *empty])
            vectors, biases = both[: len(filled)], both[len(filled) :]
        all_biases = [gather_with_gradient(share) for share in biases]
        which = [templates.index(view.template) for view in views]
        own = [places[t].pop(0) for t in which]
        return [
            (v, all_biases[t][to_device(torch.from_numpy(rows), v.device)])
            for v, t, rows in zip(vectors, which, own, strict=True)
        ]

    def _bias_rows(
        self, template: BoundTemplate, views: list[View], method: DenoisedSettings
    ) -> tuple[Rows, list[np.ndarray]]:
        """Return this worker's bias rows of a template, and indices into all workers' biases.

        The indices are (b,) for each view with this template.
        """
        lengths = [view.texts.lengths for view in views if view.template == template]
        rows, which = shared_bias_rows(
            self.backbone,
            template,
            np.concatenate(lengths),
            method.denoise,
            method.pad_positions,
            self.backbone.max_tokens,
        )
        return rows, np.split(which, np.cumsum([len(n) for n in lengths])[:-1])

    def _encode_rows(
        self, parts: Sequence[Rows], backbone: Backbone | None = None
    ) -> tuple[Tensor, ...]:
        """Return the vectors (n, D) of each part.

        backbone: an encoder of the same size to use instead of the trained one.
        """
        backbone = backbone or self.backbone
        rows = concatenate_rows(parts, backbone.tokenizer.hf.pad_token_id)
        budget, start_tokens = train_budget(backbone.device)
        if backbone.packs and backbone.device.type != "cpu":
            budget = None  # packed rows have no padding, so on a GPU they all run at once
        batches = budget, start_tokens, self.settings.mini_batch_size
        lengths = rows.lengths.numpy()
        self.work += Work(
            tokens=float(lengths.sum()),
            padding=padding(lengths, *batches, packed=backbone.packs)[0],
            flops=encoder_flops(self.encoder, lengths, backward=torch.is_grad_enabled()),
        )
        vectors = encode_rows(backbone, rows, self.readout, *batches)
        return torch.split(vectors, [len(p) for p in parts])

    def positive_texts(self, batch: Batch) -> Ragged:
        """Return the texts of the positives: those of the rows, or the sentences themselves."""
        if self.method.positive in OF_THE_SENTENCE:
            return batch.sentences
        assert batch.augmented is not None
        return batch.augmented

    def contrast(
        self,
        vectors: list[Tensor],
        *,
        extended: bool = False,
        documents: np.ndarray | None = None,
    ) -> Tensor:
        """Return the scalar loss of (b, D) anchors, positives and, if given, hard negatives.

        Positives and negatives are gathered from all workers, with gradient. documents: (b,) ids;
        rows of the same document are not negatives of each other.
        """
        anchor, *others = vectors
        columns = [gather_with_gradient(v) for v in others]
        first, exclude = len(anchor) * rank(), None
        if documents is not None:
            own = to_device(torch.from_numpy(documents), anchor.device)
            exclude = same_document(own, gather(own), first)
        loss = extended_info_nce if extended else info_nce
        with record_function("loss"):
            return loss(
                anchor, *columns, temperature=self.temperature, first=first, exclude=exclude
            ) + self.added_loss(anchor, columns, first)

    def added_loss(self, anchor: Tensor, columns: list[Tensor], first: int) -> Tensor | float:
        """Return a method's additional scalar loss.

        anchor: (b, D). columns: (B, D) positives and, if given, hard negatives of all workers.
        first: the column of the first anchor's positive.
        """
        return 0.0


def mean_cosine(left: Tensor, right: Tensor) -> Tensor:
    """Return the scalar mean cosine of left and right (b, D), without gradient."""
    return torch.cosine_similarity(left.detach().float(), right.detach().float()).mean()
