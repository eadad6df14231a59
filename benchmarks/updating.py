"""Compare `cotbert embed --update`, with 1 % new rows, with embedding all rows again.

Both sides are whole commands, with all their starts. The new rows are at the end of the input, as
in a growing log, or spread over it, so that no part stays unchanged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.commands import timed
from benchmarks.harness import DisagreementError, Row, interleave, least_cosine
from benchmarks.preparing import recombine
from cotbert_core.encoder.locations import MINILM
from cotbert_core.files import read_json
from pipelines.embedding.embed import read_embeddings

ROWS, NEW = 100_000, 1_000
# The least ratio of the times.
TARGET = 20.0
LEAST_COSINE = 0.9999


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the median seconds of `rounds` updates, and those of one run of all rows (minutes)."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        recombine(texts, ROWS, home / "all.txt")
        lines = (home / "all.txt").read_text(encoding="utf-8").splitlines()
        old = [*range(ROWS - NEW)]
        _write(home / "old.parquet", old, lines)
        _write(home / "end.parquet", [*range(ROWS)], lines)
        # Here the new rows are spread evenly among the old ones, with the same ids.
        places = np.linspace(0, len(old), NEW, dtype=int)
        anywhere = np.insert(np.asarray(old), places, np.arange(ROWS - NEW, ROWS)).tolist()
        _write(home / "anywhere.parquet", anywhere, lines)
        _embed(home, "old", "old-vectors")
        peer = _embed(home, "end", "whole")
        update = ("--update", home / "old-vectors")
        tasks = {
            case: lambda number, case=case: _embed(home, case, f"{case}-{number}", *update)
            for case in ("end", "anywhere")
        }
        rows = []
        for case, ours in interleave(tasks, rounds).items():
            check = _check(home / f"{case}-{rounds}", home / "whole")
            what = f"embed {ROWS} rows, {NEW} of them new, {case}"
            rows.append(Row(what, "--update", "all rows", ours, peer, TARGET, check))
    return rows


def _write(path: Path, ids: Sequence[int], lines: Sequence[str]) -> None:
    pq.write_table(pa.table({"id": ids, "text": [lines[n] for n in ids]}), path)


def _embed(home: Path, case: str, output: str, *more: object) -> float:
    """Return the seconds of a command."""
    words = ("embed", MINILM, "--input", home / f"{case}.parquet", "--output", home / output)
    return timed(home, *words, *more)


def _check(folder: Path, whole: Path) -> str:
    """Compare every row of an updated folder with that of the whole run."""
    update = read_json(folder / "manifest.json")["update"]
    found, asked = (_in_order(place) for place in (folder, whole))
    if found[0].tolist() != asked[0].tolist():
        raise DisagreementError("an update and a whole run have other rows")
    cosine = least_cosine(found[1], asked[1], LEAST_COSINE)
    return f"{update['taken_over']} taken over, least cosine {cosine:.6f}"


def _in_order(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    ids, vectors = read_embeddings(folder)
    order = np.argsort(ids)
    return ids[order], vectors[order]
