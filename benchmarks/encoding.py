"""SentenceEncoder.encode against SentenceTransformer.encode: one folder, the same sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.harness import DisagreementError, Row, device, first, interleave
from cotbert_core.backbone import MINILM, locate_encoder
from cotbert_core.encoder import SentenceEncoder
from cotbert_core.precision import has_fast_bf16
from cotbert_core.settings import Precision

SENTENCES = 2000
PEER_BATCH = 32
LEAST_COSINE = 0.9999
TARGETS: dict[Precision, float] = {"fp32": 1.2, "bf16": 3.0}


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Seconds for 2,000 sentences; the peer computes in fp32, its default."""
    chosen = first(texts, SENTENCES)
    ours = SentenceEncoder.from_pretrained(MINILM)
    peer = SentenceTransformer(locate_encoder(MINILM), device=device().type)

    def encode_peer(_: int) -> np.ndarray:
        return np.asarray(peer.encode(chosen, batch_size=PEER_BATCH, show_progress_bar=False))

    def encode_ours(precision: Precision) -> Callable[[int], np.ndarray]:
        return lambda _: ours.encode(chosen, precision=precision)

    formats: list[Precision] = ["fp32", "bf16"] if has_fast_bf16(device()) else ["fp32"]
    tasks = {"peer": encode_peer} | {p: encode_ours(p) for p in formats}
    vectors = {name: task(0) for name, task in tasks.items()}
    cosines = {p: _least_cosine(vectors[p], vectors["peer"]) for p in formats}
    seconds = interleave(tasks, rounds)
    return [
        Row(
            f"encode {SENTENCES} sentences",
            f"cotbert {p}",
            "sentence-transformers fp32",
            seconds[p],
            seconds["peer"],
            TARGETS[p],
            f"least cosine {cosines[p]:.6f}",
        )
        for p in formats
    ]


def _least_cosine(left: np.ndarray, right: np.ndarray) -> float:
    """The least cosine of a sentence's two vectors; DisagreementError where it is too low."""
    products = (left.astype(np.float64) * right).sum(axis=1)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    least = float((products / norms).min())
    if not least >= LEAST_COSINE:
        raise DisagreementError(f"the least cosine of two vectors of one sentence is {least:.6f}")
    return least
