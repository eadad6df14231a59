"""Compare encoders compiled by OpenVINO with torch, and int8 graphs with sentence-transformers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.encoding import PEER_BATCH
from benchmarks.harness import Row, device, first, interleave, least_cosine, number_formats
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.exporting.int8_graph import save_int8
from cotbert_core.exporting.openvino_model import with_openvino
from cotbert_core.exporting.quantization import quantized
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision

SENTENCES = 2000
# The least speedups over torch that justify the backend.
TARGETS: dict[Precision, float | None] = {"fp32": None, "bf16": 1.1}
LEAST_COSINE = 0.999
# Speedups over fp32 on a machine without AMX; int8 and torch's bf16 with AMX were not measured.
INT8_TARGETS = {"torch": 2.0, "sentence-transformers fp32": 3.0}
CALIBRATION = 1024


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 2,000 sentences in each number format of the machine."""
    if device().type != "cpu":
        return []
    chosen = first(texts, SENTENCES)
    encoder = SentenceEncoder.from_pretrained(MINILM)
    exact = encoder.encode(chosen, precision="fp32")
    formats = number_formats()
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
    others = first(texts, SENTENCES + CALIBRATION)[SENTENCES:]
    return rows + _int8(chosen, exact, others, rounds)


def _int8(
    chosen: Sequence[str], exact: np.ndarray, calibration: Sequence[str], rounds: int
) -> list[Row]:
    """Return the rows of an int8 graph calibrated on other texts than the chosen ones."""
    encoder = SentenceEncoder.from_pretrained(MINILM)  # another was made ready for OpenVINO
    peer = SentenceTransformer(locate_encoder(MINILM), device="cpu")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        encoder.save_pretrained(folder)
        saved = SentenceEncoder.from_pretrained(folder)
        save_int8(quantized(saved, calibration), folder)
        compiled = with_openvino(saved)
    tasks = {
        "int8": lambda _: compiled.encode(chosen),
        "torch": lambda _: encoder.encode(chosen),
        "sentence-transformers fp32": lambda _: peer.encode(chosen, batch_size=PEER_BATCH),
    }
    cosine = float(cosines(tasks["int8"](0), exact).mean())
    seconds = interleave(tasks, rounds)
    what, check = f"encode {SENTENCES} sentences", f"mean cosine to fp32 {cosine:.4f}"
    return [
        Row(what, "OpenVINO int8", name, seconds["int8"], seconds[name], INT8_TARGETS[name], check)
        for name in INT8_TARGETS
    ]
