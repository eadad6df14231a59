"""Templates bound to a tokenizer, and the rows of token ids made with them.

Letters: N rows, L longest row in tokens, k masks of the template, n tokens of a sentence.
A row is [CLS] prefix x suffix [SEP]; x is cut before it is wrapped, the template never is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.template_texts import Template


@dataclass(frozen=True)
class Rows:
    """Padded rows for an encoder.

    ids: (N, L) int64. lengths: (N,) number of attended tokens. readout: (N,) position of the token
    that is read. positions: (N, L) position ids, counted from 0; None: 0..L-1. features: (N, D) 1,
    or 0 for a feature that is erased from the embeddings of a row's tokens; None: none is.
    """

    ids: Tensor
    lengths: Tensor
    readout: Tensor
    positions: Tensor | None = None
    features: Tensor | None = None

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class BoundTemplate:
    """A template in token ids. `before` starts with [CLS], `after` ends with [SEP].

    Without a template these are the only tokens, and k is 0. stages: k, also 0 for a prompt.
    last: pairs of ids; the last token of a row with the first id gets the second id.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    mask_id: int
    pad_id: int
    stages: int
    last: tuple[tuple[int, int], ...] = ()

    @classmethod
    def bind(cls, template: Template | None, tokenizer: Any) -> BoundTemplate:
        """Return the template tokenized by a Hugging Face tokenizer; None: no template."""
        if tokenizer.pad_token_id is None:
            raise UserError(
                f"encoder {tokenizer.name_or_path!r} has no padding token, which texts of unequal "
                "length need: set the pad_token of its tokenizer in a copy of the folder"
            )
        first, last = _special_ends(tokenizer)
        before, after = template.parts if template else ("", "")
        mask = tokenizer.mask_token
        if template and template.stages and mask is None:
            raise UserError(
                f"encoder {tokenizer.name_or_path!r} has no mask token, which the template "
                f"{template.text!r} needs: use a masked language model, or read the mean, without "
                "a template"
            )

        def tokens(text: str) -> tuple[int, ...]:
            if template and template.stages:
                text = text.replace(template.mask, mask)
            return tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()

        bound = cls(
            before=(*first, *tokens(before)),
            after=(*tokens(after), *last),
            mask_id=tokenizer.mask_token_id if mask is not None else -1,
            pad_id=tokenizer.pad_token_id,
            stages=template.stages if template else 0,
        )
        found = (bound.before + bound.after).count(bound.mask_id)
        if found != bound.stages:
            raise UserError(
                f"template {template and template.text!r} has {bound.stages} masks and its tokens "
                f"have {found}: separate {mask} from other text"
            )
        return bound

    @property
    def length(self) -> int:
        """The number of tokens that the template adds to a sentence, including special tokens."""
        return len(self.before) + len(self.after)

    def readout(self, lengths: np.ndarray) -> np.ndarray:
        """Return the positions (N,) of the last mask, 0 without a mask. lengths: (N,) tokens."""
        if self.mask_id in self.after:
            last = len(self.after) - 1 - self.after[::-1].index(self.mask_id)
            return np.asarray(len(self.before) + lengths + last)
        if self.mask_id in self.before:
            last = len(self.before) - 1 - self.before[::-1].index(self.mask_id)
            return np.full_like(lengths, last)
        return np.zeros_like(lengths)

    def wrap(self, sentences: Ragged) -> Rows:
        """Return N rows with the template around N sentences, which have no special tokens.

        Raises UserError if a row does not have k masks: its sentence contains the mask id.
        """
        lengths = sentences.lengths
        rows = self.wrap_pads(lengths, sentences.flat)
        if not self.stages:
            return rows
        counts = (rows.ids == self.mask_id).sum(dim=1)
        wrong = torch.nonzero(counts != self.stages)
        if len(wrong):
            row = int(wrong[0])
            raise UserError(
                f"row {row} has {int(counts[row])} mask tokens and the template has {self.stages}: "
                "the sentence itself contains the mask id; tokenize it with `cotbert prepare`, "
                "which keeps a typed mask as plain text"
            )
        return rows

    def wrap_pads(self, lengths: np.ndarray, inside: np.ndarray | None = None) -> Rows:
        """Return rows with the template around n attended [PAD] tokens, for each n of `lengths`.

        inside: ids instead of [PAD], those of all rows one after the other.
        """
        ids = self._layout(lengths)
        if inside is not None:
            column, start = np.arange(ids.shape[1]), len(self.before)
            ids[(column >= start) & (column < start + lengths[:, None])] = inside
        return Rows(
            ids=torch.from_numpy(_exchange_last(ids, self.last)),
            lengths=torch.from_numpy(lengths + self.length),
            readout=torch.from_numpy(self.readout(lengths)),
        )

    def _layout(self, lengths: np.ndarray) -> np.ndarray:
        """Return ids (N, L) with the template in place for each length, and [PAD] elsewhere."""
        width = int(lengths.max(initial=0)) + self.length
        ids = np.full((len(lengths), width), self.pad_id, np.int64)
        ids[:, : len(self.before)] = self.before
        rows = np.arange(len(lengths))[:, None]
        columns = len(self.before) + lengths[:, None] + np.arange(len(self.after))
        ids[rows, columns] = self.after
        return ids


def _exchange_last(ids: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Return ids (N, L) in which the last token with a pair's first id has the second id."""
    exchanged = ids.copy() if pairs else ids
    for old, new in pairs:
        found = ids[:, ::-1] == old
        rows = np.flatnonzero(found.any(axis=1))
        exchanged[rows, ids.shape[1] - 1 - found[rows].argmax(axis=1)] = new
    return exchanged


def _special_ends(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that the tokenizer puts before and after a text."""
    probe = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a", add_special_tokens=True)
    at = next(i for i in range(len(whole)) if whole[i : i + len(probe)] == probe)
    return tuple(whole[:at]), tuple(whole[at + len(probe) :])


def concatenate_rows(parts: Sequence[Rows], pad_id: int) -> Rows:
    """Return all rows of `parts` padded to one width.

    They have positions, and features, if any part has them.
    """
    width = max(p.ids.shape[1] for p in parts)
    ids = torch.cat([_widen(p.ids, width, pad_id) for p in parts])
    positions = None
    if any(p.positions is not None for p in parts):
        default = torch.arange(width)
        positions = torch.cat(
            [
                default.expand(len(p), -1) if p.positions is None else _widen(p.positions, width, 0)
                for p in parts
            ]
        )
    features = None
    if size := max(0 if p.features is None else p.features.shape[1] for p in parts):
        features = torch.cat(
            [torch.ones(len(p), size) if p.features is None else p.features for p in parts]
        )
    return Rows(
        ids=ids,
        lengths=torch.cat([p.lengths for p in parts]),
        readout=torch.cat([p.readout for p in parts]),
        positions=positions,
        features=features,
    )


def _widen(matrix: Tensor, width: int, fill: int) -> Tensor:
    return torch.nn.functional.pad(matrix, (0, width - matrix.shape[1]), value=fill)
