"""The peer: a CoT-BERT step as in the authors' released code (METHODS 2, 3).

Every row is padded to the longest of the batch, and the whole batch is one forward pass. Every step
computes, for each template, the biases of all lengths that fit in 80 tokens, in rows padded to 80.
Of cotbert_core, only the template texts are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from cotbert_core.templates.template_texts import TEMPLATES

BIAS_WIDTH = 80
NAMES = ("cot-bert/anchor", "cot-bert/positive", "cot-bert/negative")
TEMPERATURE = 0.05
Parts = tuple[list[int], list[int]]


class ReleasedCotBert(nn.Module):
    """Encoder and training head; sentences are token ids without special tokens."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32)
        self.dense = nn.Linear(self.encoder.config.hidden_size, self.encoder.config.hidden_size)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.pad, self.mask = tokenizer.pad_token_id, tokenizer.mask_token_id
        self.templates = [self._template(tokenizer, name) for name in NAMES]

    @staticmethod
    def _template(tokenizer: Any, name: str) -> Parts:
        before, after = (
            tokenizer.encode(text, add_special_tokens=False) for text in TEMPLATES[name].parts
        )
        return [tokenizer.cls_token_id, *before], [*after, tokenizer.sep_token_id]

    def forward(self, sentences: Sequence[Sequence[int]]) -> Tensor:
        """Return the loss of a batch of B sentences."""
        rows = [[*b, *sentence, *a] for sentence in sentences for b, a in self.templates]
        vectors = self._mask_vectors(rows, max(map(len, rows)))
        vectors = vectors.view(len(sentences), len(self.templates), -1)
        lengths = torch.tensor([len(s) for s in sentences], device=vectors.device)
        biases = torch.stack([self._biases(parts)[lengths] for parts in self.templates], dim=1)
        anchor, positive, negative = torch.tanh(self.dense(vectors - biases)).unbind(dim=1)
        pairs = ((anchor, positive), (anchor, negative), (positive, negative))
        logits = torch.cat([_similarities(left, right) for left, right in pairs], dim=1)
        return F.cross_entropy(logits, torch.arange(len(anchor), device=logits.device))

    def _biases(self, parts: Parts) -> Tensor:
        """Return the biases (80 - template + 1, D); row n is for a sentence of n tokens."""
        before, after = parts
        room = BIAS_WIDTH - len(before) - len(after)
        rows = [[*before, *[self.pad] * n, *after] for n in range(room + 1)]
        return self._mask_vectors(rows, BIAS_WIDTH)

    def _mask_vectors(self, rows: list[list[int]], width: int) -> Tensor:
        """Return the vectors (N, D) of the last mask of each row."""
        on = self.dense.weight.device
        ids = torch.tensor([row + [self.pad] * (width - len(row)) for row in rows], device=on)
        # Masked by length, not by token id: the pads in the slot are attended.
        attended = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows], device=on)
        hidden: Tensor = self.encoder(input_ids=ids, attention_mask=attended).last_hidden_state
        last = [len(row) - 1 - row[::-1].index(self.mask) for row in rows]
        return hidden[torch.arange(len(rows)), last]


def _similarities(left: Tensor, right: Tensor) -> Tensor:
    """Return the cosines (B, B) of left (B, D) and right (B, D)."""
    cosines = F.cosine_similarity(left.unsqueeze(1), right.unsqueeze(0), dim=-1)
    return cosines / TEMPERATURE
