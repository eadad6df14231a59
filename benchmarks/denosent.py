"""Compare a DenoSent training step with that of the released code, on the same batches.

The released code pads every row to the same length, runs torch's Transformer decoder with its full
cross-attention, and also scores the vocabulary at padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import (
    Formats,
    Row,
    Step,
    compare_formats,
    device,
    loss_gap,
    own_steps,
    plain_step,
    token_batches,
)
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM
from cotbert_core.methods.decoder import Decoder
from cotbert_core.methods.denosent import DenoSent
from cotbert_core.settings import Precision, TrainSettings, override
from cotbert_core.training.batches import Batch

BATCH = 64
LOSS_TOLERANCE = 1e-3
PAIRS: Formats = (("bf16", "fp32", None), ("fp32", "fp32", None), ("bf16", "bf16", None))


class ReleasedDenoSent(nn.Module):
    """Our weights and losses with torch's decoder and with all rows padded to one length."""

    def __init__(self, method: DenoSent) -> None:
        super().__init__()
        self.method = method
        size, settings = method.backbone.hidden_size, method.method
        layer = nn.TransformerDecoderLayer(
            size, settings.heads, settings.feed_forward, settings.decoder_dropout, batch_first=True
        )
        self.decoder = nn.TransformerDecoder(layer, settings.layers)
        _copy(method.decoder, self.decoder)
        method.decoder = nn.Identity()  # type: ignore[assignment]

    def forward(self, batch: Batch) -> Tensor:
        method, length = self.method, self.method.settings.max_length + self.method.anchor.length
        rows = method.anchor.wrap(batch.sentences)
        pad = method.anchor.pad_id
        ids = F.pad(rows.ids, (0, length - rows.ids.shape[1]), value=pad).to(device())
        attended = torch.arange(length, device=ids.device) < rows.lengths.to(ids.device)[:, None]
        states = method.encoder(
            input_ids=ids.repeat(2, 1),
            attention_mask=attended.repeat(2, 1).long(),
            output_hidden_states=True,
        ).hidden_states
        places = rows.readout.repeat(2).to(ids.device)
        vectors = method.projection(states[-1][torch.arange(len(places)), places])
        own, other = vectors.split(len(ids))
        noisy = F.dropout(states[0][: len(ids)].detach(), method.method.dropout, self.training)
        hidden = self.decoder(noisy, own[:, None], tgt_key_padding_mask=~attended)
        scores = method.vocabulary(hidden).float()
        rebuilt = F.cross_entropy(scores.flatten(0, 1), ids.flatten(), ignore_index=pad)
        cosines = F.cosine_similarity(own[:, None].float(), other[None].float(), dim=-1)
        target = torch.arange(len(ids), device=ids.device)
        contrast = F.cross_entropy(cosines / method.temperature, target)
        weights = method.method
        return weights.contrastive_weight * contrast + weights.generative_weight * rebuilt


def _copy(ours: Decoder, theirs: nn.TransformerDecoder) -> None:
    """Copy our decoder's weights to torch's; its queries and keys of the memory have no effect."""
    for own, other in zip(ours.layers, theirs.layers, strict=True):
        layer: Any = own
        pairs = [
            (layer.attention.outward, other.self_attn.out_proj),
            (layer.memory.outward, other.multihead_attn.out_proj),
            (layer.inward, other.linear1),
            (layer.outward, other.linear2),
            *zip(layer.norms, (other.norm1, other.norm2, other.norm3), strict=True),
        ]
        for source, target in pairs:
            target.load_state_dict(source.state_dict())
        size = layer.memory.value.out_features
        with torch.no_grad():
            other.self_attn.in_proj_weight.copy_(layer.attention.inward.weight)
            other.self_attn.in_proj_bias.copy_(layer.attention.inward.bias)
            other.multihead_attn.in_proj_weight[2 * size :].copy_(layer.memory.value.weight)
            other.multihead_attn.in_proj_bias[2 * size :].copy_(layer.memory.value.bias)


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds of a step of 64 sentences, a new batch in each round."""
    batches = token_batches(texts, rounds + 1, BATCH)
    return compare_formats(
        f"DenoSent step, batch {BATCH}",
        PAIRS,
        lambda p: own_steps(_method(p), batches),
        lambda p: _released(p, batches),
        rounds,
        f"same loss to {_loss_difference(batches[0]):.0e}",
    )


def _method(precision: Precision) -> DenoSent:
    torch.manual_seed(0)
    changes = {"encoder": MINILM, "batch_size": BATCH, "precision": precision}
    changes |= {"method.name": "denosent", "templates.anchor": "denosent"}
    changes |= {"templates.positive": None, "templates.negative": None}
    return DenoSent(load_backbone(MINILM), override(TrainSettings(), changes)).to(device())


def _released(precision: Precision, batches: Sequence[Batch]) -> Step:
    model = ReleasedDenoSent(_method(precision)).to(device()).train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-5, weight_decay=0.0)
    return lambda n: plain_step(model, optimizer, precision, lambda: model(batches[n]))


@torch.no_grad()
def _loss_difference(batch: Batch) -> float:
    """Return the difference of the two losses of a batch, in fp32 without dropout."""
    own = float(_method("fp32").eval()(batch).loss)
    peer = float(ReleasedDenoSent(_method("fp32")).to(device()).eval()(batch))
    return loss_gap(own, peer, LOSS_TOLERANCE)
