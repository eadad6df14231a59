"""Output folders as tests read them, or bring them into states that only a kill leaves."""

from __future__ import annotations

import shutil
from pathlib import Path

from pipelines.embedding.embed import read_embeddings
from pipelines.training.metrics_log import read_rows


def unfinished_copy(finished: Path, copy: Path) -> Path:
    """A finished run as it was between its last checkpoint and its model."""
    shutil.copytree(finished, copy)
    for name in ("result.json", "report.html"):
        (copy / name).unlink()
    shutil.rmtree(copy / "model")
    return copy


def curve(run: Path) -> list[float]:
    """The losses of a training run, in the order of its steps."""
    return [row["loss"] for row in read_rows(run / "metrics.jsonl").values() if "loss" in row]


def by_id(embeddings: Path) -> dict:
    """Id -> vector of an embeddings folder, each id once."""
    ids, vectors = read_embeddings(embeddings)
    assert len(set(ids.tolist())) == len(ids)
    return dict(zip(ids.tolist(), vectors, strict=True))
