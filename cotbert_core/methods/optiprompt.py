"""OptiPrompt (PromptBERT, section 4.2): a continuous template for a frozen encoder.

Every token of the template except [CLS], [MASK] and [SEP] becomes a new token, whose embedding is
initialised from the replaced one. Nothing else in the encoder is trained. A saved folder has these
tokens in its vocabulary, so it loads like any other. The objective is SimCSE's: the same sentence
twice, with two dropout masks.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import apply_head, head_notes, new_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.errors import UserError
from cotbert_core.method_settings.papers import OptiPromptSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.template_texts import Template
from cotbert_core.templates.tokenizing import SentenceTokenizer
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch


class PromptEmbedding(nn.Module):
    """Word embeddings of V frozen tokens and k trained ones, with the ids V .. V + k - 1."""

    def __init__(self, table: nn.Embedding, replaced: list[int]) -> None:
        super().__init__()
        self.table = table
        self.rows = nn.Parameter(table.weight.detach()[replaced].clone())

    @property
    def weight(self) -> Tensor:
        """The embeddings of all tokens, (V + k, D)."""
        return torch.cat([self.table.weight, self.rows])

    def forward(self, ids: Tensor) -> Tensor:
        own = ids - self.table.num_embeddings
        frozen = self.table(torch.where(own < 0, ids, 0))
        # Frozen tokens look up a padding row, whose gradient is not accumulated: many additions to
        # one row are serialised on a GPU.
        unused = len(self.rows)
        padded = F.pad(self.rows, (0, 0, 0, 1))
        trained = F.embedding(torch.where(own < 0, unused, own), padded, padding_idx=unused)
        return torch.where((own < 0).unsqueeze(-1), frozen, trained)

    def merged(self) -> nn.Embedding:
        """Return one plain embedding table of all V + k tokens."""
        weight = self.weight.detach().clone()
        size, padding = tuple(weight.shape), self.table.padding_idx
        merged = nn.Embedding(size[0], size[1], padding_idx=padding, device="meta")
        merged.weight = nn.Parameter(weight)
        return merged


class OptiPrompt(Contrastive):
    """OptiPrompt, which trains the template's embeddings and a head that is dropped afterwards."""

    method: OptiPromptSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.head = new_head(self.method.head, backbone)
        self._template, tokenizer, replaced = _own_tokens(backbone, self.template("anchor"))
        table = backbone.model.get_input_embeddings()
        backbone.model.requires_grad_(False)
        backbone.model.set_input_embeddings(PromptEmbedding(table, replaced))
        self.backbone = replace(backbone, tokenizer=tokenizer)
        self._last: tuple[tuple[int, int], ...] = ()
        if self.method.replaced == "last":
            self._template = self.template("anchor")
            # As in the released code, the last of several equal template tokens is used.
            own = {old: table.num_embeddings + n for n, old in enumerate(replaced)}
            self._last = tuple(own.items())
        self.anchor = replace(BoundTemplate.bind(self._template, tokenizer.hf), last=self._last)

    def forward(self, batch: Batch) -> MethodOutput:
        views = [View(self.anchor, batch.sentences)] * 2
        vectors = [apply_head(v, None, self.head) for v, _ in self.encode(views)]
        return MethodOutput(self.contrast(vectors), {"positive_cosine": mean_cosine(*vectors)})

    @property
    def pooling(self) -> PoolingConfig:
        return replace(super().pooling, template=self._template, last=self._last)

    def notes(self, columns: Sequence[str]) -> list[str]:
        return super().notes(columns) + head_notes(self.head, self.backbone)

    @property
    def finished(self) -> Backbone:
        """The encoder with the trained embeddings in its own table."""
        model = copy.deepcopy(self.backbone.model)
        table = model.get_input_embeddings().merged()
        model.set_input_embeddings(table)
        model.config.vocab_size = table.num_embeddings
        return replace(self.backbone, model=model.requires_grad_(True))


def _own_tokens(
    backbone: Backbone, template: Template
) -> tuple[Template, SentenceTokenizer, list[int]]:
    """Return the template with new tokens, a tokenizer with them, and the ids they replace.

    Raises UserError for a template without a token to replace.
    """
    plain = backbone.tokenizer.hf
    bound, bare = BoundTemplate.bind(template, plain), BoundTemplate.bind(None, plain)
    before = bound.before[len(bare.before) :]
    after = bound.after[: len(bound.after) - len(bare.after)]
    replaced = [token for token in before + after if token != plain.mask_token_id]
    if not replaced:
        raise UserError(
            f"templates.anchor is {template.text!r} and method optiprompt trains the template's "
            "own tokens: add words to it"
        )
    names = _free_names(plain, "PROMPT", len(replaced))
    fresh = iter(names)

    def written(ids: tuple[int, ...]) -> str:
        return "".join(template.mask if i == plain.mask_token_id else next(fresh) for i in ids)

    own = Template(written(before) + template.slot + written(after), template.slot, template.mask)
    tokenizer = copy.deepcopy(plain)
    # New ids start after the table's rows, since some vocabularies are shorter than their table.
    spare = backbone.model.get_input_embeddings().num_embeddings - len(tokenizer)
    tokenizer.add_tokens(_free_names(plain, "SPARE", spare), special_tokens=True)
    tokenizer.add_tokens(names, special_tokens=True)
    return own, SentenceTokenizer(tokenizer), replaced


def _free_names(tokenizer: Any, stem: str, count: int) -> list[str]:
    """Return unused token names; an encoder trained by this method already uses some."""
    taken = tokenizer.get_vocab()
    names = (f"[{stem}{number}]" for number in itertools.count())
    return list(itertools.islice((name for name in names if name not in taken), max(0, count)))
