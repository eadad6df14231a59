"""Small embeddings folders, written by hand as `cotbert embed` writes them, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.files import read_json, write_json
from pipelines.embedding.parts import ELEMENTS
from pipelines.reading.data_folder import make_data_folder


def write_part(
    path: Path,
    ids: Sequence[int],
    vectors: np.ndarray,
    kept: dict[str, Sequence[Any]] | None = None,
    group: int = 5,
) -> None:
    """One part: ids (n,), vectors (n, D) of the type that they are stored in, other columns."""
    element = ELEMENTS[str(vectors.dtype)]
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1), element)
    columns = {
        "id": pa.array(ids, pa.int64()),
        **{name: pa.array(values) for name, values in (kept or {}).items()},
        "embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
    }
    pq.write_table(pa.table(columns), path, row_group_size=group)


def write_folder(
    folder: Path,
    ids: Sequence[int],
    vectors: np.ndarray,
    kept: dict[str, Sequence[Any]] | None = None,
    parts: int = 3,
    group: int = 5,
    **manifest: Any,
) -> Path:
    """A finished folder whose rows lie in `parts` parts of small row groups."""
    data = make_data_folder(folder)
    cuts = np.linspace(0, len(ids), parts + 1).astype(int)
    for number, (start, stop) in enumerate(pairwise(cuts)):
        columns = {name: values[start:stop] for name, values in (kept or {}).items()}
        part = data / f"part-{number:06}.parquet"
        write_part(part, ids[start:stop], vectors[start:stop], columns, group)
    facts = {
        "format": 1,
        "rows": len(ids),
        "dimension": vectors.shape[1],
        "dtype": str(vectors.dtype),
        "model": "nobody",
        "model_digest": None,
        "readout": "mean",
        "template": None,
        "id_column": None,
        "files": 1,
    }
    write_json(folder / "manifest.json", facts | manifest)
    return folder


def change_manifest(folder: Path, **entries: Any) -> None:
    """Change these entries of a folder's manifest."""
    write_json(folder / "manifest.json", read_json(folder / "manifest.json") | entries)
