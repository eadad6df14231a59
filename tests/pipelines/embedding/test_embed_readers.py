"""What other tools make of the folder of the parts: plain vectors, without a word of ours."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipelines.embed import EmbedOptions, embed, read_embeddings
from pipelines.reading import pieces

NUMPY = {"float32": np.float32, "float16": np.float16, "int8": np.int8}


@pytest.fixture(params=NUMPY)
def vectors(request, tmp_path, bert_folder, without_ray, monkeypatch):
    """A folder of several parts, its ids, and (N, 32) vectors as they are stored."""
    monkeypatch.setattr(pieces, "PIECE_ROWS", 4)
    rows = [
        {"id": 10 + n, "text": "A man" + " and dogs" * n, "kind": "ab"[n % 2]} for n in range(10)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = EmbedOptions(
        *(bert_folder, (str(tmp_path / "a.jsonl"),)),
        id_column="id",
        dtype=request.param,
        keep=("kind",),
        precision="fp32",
    )
    out = tmp_path / "vectors"
    embed(options, out)
    assert len(list(out.glob("data/part-*.parquet"))) == 3
    ids, values = read_embeddings(out)
    scale = json.loads((out / "manifest.json").read_text()).get("scale", 1)
    return out, ids, np.rint(values / scale) if scale != 1 else values, NUMPY[request.param]


def check_rows(found, vectors):
    """(id, kind, embedding) rows of a tool against the vectors, which tell rows apart."""
    _, ids, expected, _ = vectors
    assert [row[0] for row in found] == ids.tolist()
    assert [row[1] for row in found] == ["ab"[n % 2] for n in range(10)]
    given = np.stack([np.asarray(row[2], np.float64) for row in found])
    np.testing.assert_allclose(given, expected, rtol=1e-6)
    assert len(np.unique(given, axis=0)) == 10


def test_duckdb(vectors):
    duckdb = pytest.importorskip("duckdb")
    table = f"read_parquet('{vectors[0] / 'data'}')"
    found = duckdb.sql(f"select id, kind, embedding from {table} order by id").fetchall()
    check_rows(found, vectors)
    # Of lists of this type it computes as of its own.
    query = f"select list_cosine_similarity(embedding::float[], embedding::float[]) from {table}"
    assert [value for (value,) in duckdb.sql(query).fetchall()] == pytest.approx([1.0] * 10)


def test_polars(vectors):
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(vectors[0] / "data").sort("id")
    check_rows(frame.select("id", "kind", "embedding").rows(), vectors)
    assert frame["embedding"].dtype == polars.Array(frame["embedding"].dtype.inner, 32)


def test_pandas(vectors):
    frame = pd.read_parquet(vectors[0] / "data")
    check_rows(frame[["id", "kind", "embedding"]].values.tolist(), vectors)
    assert {v.dtype for v in frame["embedding"]} == {np.dtype(vectors[3])}


def test_pyarrow(vectors):
    table = pq.read_table(vectors[0] / "data")
    columns = (table[name].to_pylist() for name in ("id", "kind", "embedding"))
    check_rows(list(zip(*columns, strict=True)), vectors)
    flat = table["embedding"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    assert flat.dtype == vectors[3]
