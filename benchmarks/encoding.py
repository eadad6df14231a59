"""Compare SentenceEncoder.encode with SentenceTransformer.encode: same folder, same sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.harness import Row, device, first, interleave, least_cosine, number_formats
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision

SENTENCES = 2000
PEER_BATCH = 32
LEAST_COSINE = 0.9999
TARGETS: dict[Precision, float] = {"fp32": 1.2, "bf16": 3.0}


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 2,000 sentences; the peer computes in fp32, its default."""
    chosen = first(texts, SENTENCES)
    ours = SentenceEncoder.from_pretrained(MINILM)
    peer = SentenceTransformer(locate_encoder(MINILM), device=device().type)

    def encode_peer(_: int) -> np.ndarray:
        return np.asarray(peer.encode(chosen, batch_size=PEER_BATCH, show_progress_bar=False))

    def encode_ours(precision: Precision) -> Callable[[int], np.ndarray]:
        return lambda _: ours.encode(chosen, precision=precision)

    formats = number_formats()
    tasks = {"peer": encode_peer} | {p: encode_ours(p) for p in formats}
    vectors = {name: task(0) for name, task in tasks.items()}
    cosines = {p: least_cosine(vectors[p], vectors["peer"], LEAST_COSINE) for p in formats}
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
