"""DenoSent: a decoder reconstructs a noisy sentence with the help of the sentence vector.

The projected vector z of x is the decoder's only memory. The decoder's input is the input
embeddings of x+ (or x), detached from the encoder and mostly set to zero. The other part of the
loss is InfoNCE between x and x+. Projection, decoder and vocabulary head are dropped after
training. Letters: b rows of this worker, T tokens of all rows, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.dropout import dropout
from cotbert_core.encoder.length_batches import length_batches
from cotbert_core.encoder.mlm import mlm_head, new_dense
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.method_settings.papers import DenoSentSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine, train_budget
from cotbert_core.methods.decoder import Decoder
from cotbert_core.methods.without_template import plain_pooling_config
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import Rows
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import sums, world_size
from cotbert_core.training.flops import Work, linear_weights, transformer_flops
from cotbert_core.training.gradient_cache import recomputed


class DenoSent(Contrastive):
    """DenoSent with the contrastive loss, the denoising loss, or both."""

    method: DenoSentSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.readout = self.method.readout
        masked = self.readout == "mask"
        self.anchor = self.bind("anchor" if masked else None)
        self.queries = self.anchor if masked else self.bind_queries(self.anchor)
        self.contrasts = self.method.objective != "generative"
        self.generates = self.method.objective != "contrastive"
        if self.generates or self.method.projected:
            self.projection = new_dense(backbone.hidden_size)
        if self.generates:
            self.decoder = Decoder(
                backbone.hidden_size,
                self.method.layers,
                self.method.heads,
                self.method.feed_forward,
                self.method.decoder_dropout,
            )
            self.vocabulary = mlm_head(backbone)

    def forward(self, batch: Batch) -> MethodOutput:
        """Return the loss, the weighted sum of `contrastive` and `generative`."""
        others = self.positive_texts(batch)
        first = self.anchor if self._falls_back(batch.columns) else self.queries
        views = [View(first, batch.sentences), View(self.anchor, others)]
        raw = [vectors for vectors, _ in self.encode(views if self.contrasts else views[:1])]
        memory = self.projection(raw[0]) if self.generates or self.method.projected else raw[0]
        losses, parts = [], {}
        if self.contrasts:
            vectors = [memory, self.projection(raw[1])] if self.method.projected else raw
            parts["contrastive"] = self.contrast(vectors, documents=batch.documents)
            losses.append(self.method.contrastive_weight * parts["contrastive"])
            parts["positive_cosine"] = mean_cosine(*vectors)
        if self.generates:
            target = others if self.method.target == "augmented" else batch.sentences
            with record_function("decoder"):
                parts["generative"] = self.denoise(target, memory)
            losses.append(self.method.generative_weight * parts["generative"])
        return MethodOutput(torch.stack(losses).sum(), parts)

    def positive_texts(self, batch: Batch) -> Ragged:
        return batch.sentences if self._falls_back(batch.columns) else super().positive_texts(batch)

    def needs_dropout(self, columns: Sequence[str]) -> bool:
        return self.contrasts and (super().needs_dropout(columns) or self._falls_back(columns))

    def _falls_back(self, columns: Sequence[str]) -> bool:
        """Return whether sentences are their own positives because there are no augmented texts."""
        return self.method.positive == "paired" and "augmented" not in columns

    def denoise(self, target: Ragged, memory: Tensor) -> Tensor:
        """Return the scalar mean cross-entropy of the reconstruction, over all workers' tokens.

        target: b texts in token ids, which get the special tokens. memory: (b, D).
        """
        rows = self.anchor.wrap(target)
        lengths = rows.lengths.numpy()
        self.work += Work(flops=self._decoder_flops(lengths))
        device, most = memory.device, self.settings.mini_batch_size
        total = torch.zeros((), device=device)
        loss = partial(recomputed, self._rebuilt, device=device) if most else self._rebuilt
        for chosen, width in length_batches(lengths, *train_budget(device), most):
            total = total + loss(rows, chosen, width, memory)
        (tokens,) = sums([float(lengths.sum())])
        return total * world_size() / tokens

    def _decoder_flops(self, lengths: np.ndarray) -> float:
        """Return the model FLOPs of decoder and vocabulary head, forward and backward.

        lengths: (b,) tokens of each row. The layers that read the memory run once per row, all
        others once per token.
        """
        per_token = linear_weights(self.decoder, but="memory")
        per_row = linear_weights(self.decoder)[0] - per_token[0]
        words = linear_weights(self.vocabulary)[0]
        size, layers = self.backbone.hidden_size, self.method.layers
        layered = transformer_flops(lengths, size, layers, *per_token, backward=True)
        return layered + 6.0 * (per_row * len(lengths) + words * float(lengths.sum()))

    def _rebuilt(self, rows: Rows, chosen: Tensor, width: int, memory: Tensor) -> Tensor:
        """Return the sum of the cross-entropy over the tokens of the chosen rows."""
        ids = rows.ids[chosen, :width]
        attended = torch.arange(width) < rows.lengths[chosen][:, None]
        # Indices instead of a mask, for which the host would wait until the GPU has counted it.
        places = attended.flatten().nonzero().squeeze(1)
        parts = (ids, attended, places, ids[attended], chosen)
        ids, attended, places, target, chosen = (to_device(p, memory.device) for p in parts)
        noisy = self._embedded(ids)
        if self.training:
            noisy = dropout(noisy, self.method.dropout)
        hidden = self.decoder(noisy, attended, memory[chosen])
        scores = self.vocabulary(hidden.flatten(0, 1).index_select(0, places))
        return F.cross_entropy(scores.float(), target, reduction="sum")

    def _embedded(self, ids: Tensor) -> Tensor:
        """Return the encoder's input embeddings (n, L, D) of ids (n, L), without gradient."""
        with torch.no_grad():
            embedded: Tensor = self.encoder.embeddings(input_ids=ids)
        return embedded

    def notes(self, columns: Sequence[str]) -> list[str]:
        notes = super().notes(columns)
        if self.generates and self.vocabulary.fresh:
            notes.append(
                f"encoder {self.backbone.name!r} has no masked-language-model head: the decoder "
                "uses a new one, tied to the encoder's word embeddings"
            )
        if self._falls_back(columns):
            effects = ["positives differ only in dropout"] * self.contrasts
            effects += ["each sentence is rebuilt from its own noisy embeddings"] * self.generates
            notes.append(f"the corpus has no augmented texts: {', and '.join(effects)}")
        return notes

    @property
    def pooling(self) -> PoolingConfig:
        masked = self.readout == "mask"
        pooling = super().pooling if masked else plain_pooling_config(self.settings, self.readout)
        if self.method.inference == "released":
            return replace(pooling, full_stop=False, max_length=self.settings.max_length)
        return replace(pooling, full_stop=True)
