"""An encoder as the package mteb takes one (its EncoderProtocol, mteb 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cotbert_core.evaluation.pairs import Encode


class MtebModel:
    """`encode` behind mteb's interface: no prompts by task, cosine similarity."""

    def __init__(self, encode: Encode, name: str = "cotbert/encoder") -> None:
        self._encode, self._name = encode, name

    def encode(self, inputs: Iterable[Mapping[str, Any]], **_: Any) -> np.ndarray:
        """Batches of {"text": texts}, as mteb's DataLoader gives them -> (N, D) vectors.

        All of them are encoded at once: sorted by length they need fewer padded tokens.
        """
        return self._encode([text for batch in inputs for text in batch["text"]])

    def similarity(self, left: Any, right: Any) -> Any:
        """(N, D), (M, D) -> (N, M) cosines."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(left, right)

    def similarity_pairwise(self, left: Any, right: Any) -> Any:
        """(N, D), (N, D) -> (N,) cosines."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(left, right)

    @property
    def mteb_model_meta(self) -> Any:
        from mteb.models.model_meta import ModelMeta

        return ModelMeta.create_empty({"name": self._name})
