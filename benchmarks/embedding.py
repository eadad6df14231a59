"""`cotbert embed` on Ray Data against the bare encode() it is made of: what the pipeline costs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import Row, first, interleave, least_cosine
from cotbert_core.backbone import MINILM
from cotbert_core.encoder import SentenceEncoder
from pipelines.embed import EmbedOptions, embed, read_embeddings
from pipelines.ray_session import ray_session

SENTENCES = 20_000
TARGET = 0.85
LEAST_COSINE = 0.9999


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Seconds for 20,000 sentences, from the first one embedded to the last one written.

    Starting Ray and loading the encoder are not counted on either side. A text with fewer
    sentences is taken several times over.
    """
    chosen = (list(texts) * -(-SENTENCES // len(texts)))[:SENTENCES]
    encoder = SentenceEncoder.from_pretrained(MINILM)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as name, ray_session():
        home = Path(name)
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{home / 'mlflow.db'}"
        (home / "text.txt").write_text("\n".join(chosen), encoding="utf-8")

        def pipeline(number: int) -> None:
            output = home / f"vectors-{number}"
            result = embed(EmbedOptions(MINILM, (str(home / "text.txt"),)), output)
            seconds.append(result["rows"] / result["sentences_per_second"])

        peer = interleave({"bare": lambda _: encoder.encode(chosen), "embed": pipeline}, rounds)
        _check(home / "vectors-1", encoder.encode(first(chosen, 200)))
    return [
        Row(
            f"embed {SENTENCES} sentences",
            "cotbert embed",
            "bare encode()",
            float(np.median(seconds)),
            peer["bare"],
            TARGET,
            "same vectors",
        )
    ]


def _check(folder: Path, expected: np.ndarray) -> None:
    ids, vectors = read_embeddings(folder)
    found = vectors[np.argsort(ids)[: len(expected)]]
    least_cosine(found, expected, LEAST_COSINE)
