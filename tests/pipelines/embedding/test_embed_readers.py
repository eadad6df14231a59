"""What other tools make of the folder of the parts: plain vectors, without a word of ours."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from pipelines.embedding.embed import read_embeddings

duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
COLUMNS = ["id", "kind", "embedding"]


def by_duckdb(data):
    table = f"read_parquet('{data}')"
    # Of lists of this type it computes as of its own.
    query = f"select list_cosine_similarity(embedding::float[], embedding::float[]) from {table}"
    assert [value for (value,) in duckdb.sql(query).fetchall()] == pytest.approx([1.0] * 10)
    return duckdb.sql(f"select id, kind, embedding from {table} order by id").fetchall()


def by_polars(data):
    frame = polars.read_parquet(data).sort("id")
    assert frame["embedding"].dtype == polars.Array(frame["embedding"].dtype.inner, 32)
    return frame.select(COLUMNS).rows()


def by_pandas(data):
    frame = pd.read_parquet(data)
    assert {vector.dtype for vector in frame["embedding"]} == {np.dtype("int8")}
    return frame[COLUMNS].values.tolist()


def by_pyarrow(data):
    table = pq.read_table(data)
    flat = table["embedding"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    assert flat.dtype == "int8"
    return zip(*(table[name].to_pylist() for name in COLUMNS), strict=True)


@pytest.mark.usefixtures("small_blocks")
def test_four_tools_read_the_stored_vectors(tmp_path, job):
    rows = [
        {"id": 10 + n, "text": "A man" + " and dogs" * n, "kind": "ab"[n % 2]} for n in range(10)
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    job("out", "a.jsonl", id_column="id", dtype="int8", keep=("kind",))
    assert len(list((tmp_path / "out").glob("data/part-*.parquet"))) == 3
    ids, expected = read_embeddings(tmp_path / "out")
    scales = np.asarray(pq.read_table(tmp_path / "out" / "data")["scale"])
    expected = np.rint(expected / scales[:, None])
    assert len(np.unique(expected, axis=0)) == 10, "premise: vectors tell rows apart"
    for tool in (by_duckdb, by_polars, by_pandas, by_pyarrow):
        found_ids, kinds, vectors = zip(*tool(tmp_path / "out" / "data"), strict=True)
        assert (list(found_ids), list(kinds)) == (ids.tolist(), [row["kind"] for row in rows])
        given = np.stack([np.asarray(vector, np.float64) for vector in vectors])
        np.testing.assert_allclose(given, expected, rtol=1e-6, err_msg=tool.__name__)
