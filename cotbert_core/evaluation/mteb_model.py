"""An encoder with the interface of the package mteb (EncoderProtocol, mteb 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cotbert_core.evaluation.pairs import EncodeFunctions


class MtebModel:
    """An encoder's functions with mteb's interface: no task prompts, cosine similarity."""

    def __init__(self, encode: EncodeFunctions) -> None:
        self._texts, self._queries = encode.texts, encode.queries or encode.texts

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: str | None = None, **_: Any
    ) -> np.ndarray:
        """Return the vectors (N, D) of all texts. inputs: mteb's batches {"text": texts}.

        All batches are encoded together, sorted by length, which reduces padding.
        """
        encode = self._queries if prompt_type == "query" else self._texts
        return encode([text for batch in inputs for text in batch["text"]])

    def similarity(self, left: Any, right: Any) -> Any:
        """Return the cosines (N, M) of left (N, D) and right (M, D)."""
        from mteb.similarity_functions import cos_sim

        return cos_sim(left, right)

    def similarity_pairwise(self, left: Any, right: Any) -> Any:
        """Return the cosines (N,) of left (N, D) and right (N, D)."""
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(left, right)

    @property
    def mteb_model_meta(self) -> Any:
        from mteb.models.model_meta import ModelMeta

        return ModelMeta.create_empty({"name": "cotbert/encoder"})
