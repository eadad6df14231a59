"""Compare `cotbert embed` with its own bare encode() and with sentence-transformers."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.harness import Row, device, first, interleave, least_cosine
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.training.precision import resolve_precision
from pipelines.embedding.embed import EmbedOptions, embed, read_embeddings
from pipelines.runtime.ray_session import ray_session

SENTENCES = 20_000
# The least rates relative to bare encode() and to sentence-transformers.
TARGET = 0.9
TARGETS: dict[Precision, float] = {"fp32": 1.2, "bf16": 3.0}
LEAST_COSINE = 0.9999
# The peer's batch size is the fastest of these on the first sentences.
PEER_BATCHES, TRIED = (8, 16, 32, 64, 128), 1000


class Command:
    """The job of `cotbert embed` in an existing Ray session.

    seconds: from the start of the first block to the end of the last one, without the start of Ray
    and of the encoder, by number format.
    """

    def __init__(self, home: Path, sentences: Sequence[str]) -> None:
        self._home, self.seconds = home, dict[str, list[float]]()
        self._text = home / "text.txt"
        self._text.write_text("\n".join(sentences), encoding="utf-8")

    def folder(self, precision: Precision, number: int) -> Path:
        return self._home / f"{precision}-{number}"

    def run(self, precision: Precision, number: int) -> None:
        options = EmbedOptions(MINILM, (str(self._text),), precision=precision)
        result = embed(options, self.folder(precision, number))
        seconds = result["rows"] / result["sentences_per_second"]
        self.seconds.setdefault(precision, []).append(seconds)


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 20,000 sentences; a smaller text is repeated.

    The peer and fp32 take minutes and run once.
    """
    chosen = (list(texts) * -(-SENTENCES // len(texts)))[:SENTENCES]
    encoder = SentenceEncoder.from_pretrained(MINILM)
    auto = resolve_precision("auto", device())
    what = f"embed {SENTENCES} sentences"
    with (
        tempfile.TemporaryDirectory() as name,
        patch.dict(os.environ, MLFLOW_TRACKING_URI=f"sqlite:///{name}/mlflow.db"),
        ray_session(),
    ):
        command = Command(Path(name), chosen)
        encoder.encode(chosen[:TRIED])
        tasks = {
            "bare": lambda _: encoder.encode(chosen),
            "embed": lambda number: command.run(auto, number),
        }
        bare = interleave(tasks, rounds)["bare"]
        _check(command.folder(auto, 1), encoder.encode(first(chosen, 200)))
        ours = float(np.median(command.seconds[auto]))
        rows = [Row(what, "cotbert embed", "bare encode()", ours, bare, TARGET, "same vectors")]
        peer, vectors, batch = _peer(chosen)
        command.run("fp32", 0)
        folders = {auto: command.folder(auto, 1), "fp32": command.folder("fp32", 0)}
        for precision, folder in folders.items():
            cosine = _check(folder, vectors)
            seconds = float(np.median(command.seconds[precision]))
            against, check = f"sentence-transformers fp32, {batch}", f"least cosine {cosine:.6f}"
            ours_is, target = f"cotbert embed {precision}", TARGETS[precision]
            rows.append(Row(what, ours_is, against, seconds, peer, target, check))
    return rows


def _peer(sentences: Sequence[str]) -> tuple[float, np.ndarray, int]:
    """Return the seconds, vectors and batch size of sentence-transformers in fp32, its default."""
    model = SentenceTransformer(locate_encoder(MINILM), device=device().type)

    def timed(chosen: Sequence[str], batch: int) -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        found = model.encode(list(chosen), batch_size=batch, show_progress_bar=False)
        return time.perf_counter() - start, np.asarray(found)

    timed(sentences[:TRIED], PEER_BATCHES[0])
    batch = min(PEER_BATCHES, key=lambda size: timed(sentences[:TRIED], size)[0])
    return *timed(sentences, batch), batch


def _check(folder: Path, expected: np.ndarray) -> float:
    """Return the least cosine of a folder's first vectors and the expected ones."""
    ids, vectors = read_embeddings(folder)
    found = vectors[np.argsort(ids)[: len(expected)]]
    return least_cosine(found, expected, LEAST_COSINE)
