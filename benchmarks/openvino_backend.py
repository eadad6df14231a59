"""`encode()` with the encoder compiled by OpenVINO against the same in torch."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.harness import Row, device, first, interleave, least_cosine
from cotbert_core.encoder.locations import MINILM
from cotbert_core.exporting.openvino_model import with_openvino
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.training.precision import has_fast_bf16

SENTENCES = 2000
# It is offered as long as it is worth it.
TARGETS: dict[Precision, float | None] = {"fp32": None, "bf16": 1.1}
LEAST_COSINE = 0.999


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Seconds for 2,000 sentences, in each number format that the machine computes in."""
    if device().type != "cpu":
        return []
    chosen = first(texts, SENTENCES)
    encoder = SentenceEncoder.from_pretrained(MINILM)
    exact = encoder.encode(chosen, precision="fp32")
    formats: list[Precision] = ["fp32", "bf16"] if has_fast_bf16(device()) else ["fp32"]
    rows = []
    for p in formats:
        compiled = with_openvino(encoder, p)
        tasks = {
            "openvino": lambda _, e=compiled: e.encode(chosen),
            "torch": lambda _, p=p: encoder.encode(chosen, precision=p),
        }
        cosine = least_cosine(tasks["openvino"](0), exact, LEAST_COSINE)
        seconds = interleave(tasks, rounds)
        check = f"least cosine to fp32 {cosine:.6f}"
        pair = f"OpenVINO {p}", f"torch {p}"
        what = f"encode {SENTENCES} sentences"
        rows.append(Row(what, *pair, seconds["openvino"], seconds["torch"], TARGETS[p], check))
    return rows
