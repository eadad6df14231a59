"""Vectors as they are stored and turned back, and what the manifest says of their model."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.evaluation.passages import Passages
from pipelines.embedding.manifest import model_commit
from pipelines.embedding.quantization import (
    METADATA_KEY,
    Storage,
    StoredRows,
    passthrough_array,
    read_embeddings,
    shorten,
    write_part,
)

VECTORS = (np.random.default_rng(0).normal(size=(50, 8)) * np.arange(8)).astype(np.float32)


def test_fewer_dimensions_are_of_unit_length_again():
    plain, unit = (shorten(VECTORS, 5, normalize) for normalize in (False, True))
    np.testing.assert_array_equal(plain, VECTORS[:, :5])
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(plain, axis=1, keepdims=True), plain, 1e-5)
    zero = np.zeros((1, 8), np.float32)
    np.testing.assert_array_equal(shorten(zero, 5, True), zero[:, :5])


def test_int8_is_back_within_half_the_scale_of_its_row():
    """Which is that of the row's passages too, and 1 for a row of zeros."""
    vectors = np.concatenate([VECTORS, np.zeros((1, 8), np.float32)])
    counts = np.arange(51)[::-1] % 3
    passages = Passages(np.resize(VECTORS * 2, (counts.sum(), 8)), counts)
    stored, others, scales = Storage(8, "int8", False, passages=True).quantize(vectors, passages)
    assert (stored.dtype, others.dtype, scales[-1]) == (np.int8, np.int8, 1)
    of_row = np.repeat(scales, counts)[:, None]
    assert (np.abs(stored * scales[:, None] - vectors) <= scales[:, None] * 0.5001).all()
    assert (np.abs(others * of_row - passages.vectors) <= of_row * 0.5001).all()
    ends = np.cumsum(counts)
    for row in range(50):
        together = [stored[row], *others[ends[row] - counts[row] : ends[row]]]
        assert np.abs(together).max() == 127


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_part_has_its_columns_and_says_how_to_read_them(tmp_path, dtype):
    facts = {"dimension": 8, **({"scale": "row"} if dtype == "int8" else {})}
    kept = (("year", pa.int32()), ("label", pa.string()))
    storage = Storage(8, dtype, False, kept, facts)
    none = Passages(np.zeros((0, 8)), np.zeros(50, int))
    stored, _, scales = storage.quantize(VECTORS, none)
    rows = StoredRows(np.arange(50), stored, pa.nulls(50), scales, np.zeros(50, bool), 0)
    labels = [*["a"] * 48, None, {"b": "ü"}]
    write_part(storage.table(range(50), [range(50), labels], rows), tmp_path / "part-0.parquet")
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    group = pq.read_metadata(tmp_path / "part-0.parquet").row_group(0)
    kinds = {group.column(n).path_in_schema: group.column(n).compression for n in range(4)}
    packed = "ZSTD" if dtype == "int8" else "UNCOMPRESSED"
    assert (kinds["embedding.list.element"], kinds["label"]) == (packed, "ZSTD")
    table = pq.read_table(tmp_path / "part-0.parquet")
    element = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[dtype]
    columns = {"id": pa.int64(), **dict(kept), "embedding": pa.list_(element, 8)}
    columns |= {"scale": pa.float32()} if dtype == "int8" else {}
    assert table.schema == pa.schema(columns)
    assert json.loads(table.schema.metadata[METADATA_KEY.encode()]) == facts
    assert table["label"].to_pylist()[47:] == ["a", None, '{"b": "ü"}']
    ids, vectors = read_embeddings(str(tmp_path))
    assert ids.tolist() == list(range(50))
    assert vectors.dtype == (np.float16 if dtype == "float16" else np.float32)
    np.testing.assert_allclose(vectors, VECTORS, atol={"float32": 0}.get(dtype, 0.1))


def test_kept_values_of_json_become_text():
    values = ["text", 3, 1.5, True, None, ["a"], "lone \udc80"]
    expected = ["text", "3", "1.5", "true", None, '["a"]', "lone ?"]
    assert passthrough_array(values, pa.string()).to_pylist() == expected
    assert passthrough_array([1, None], pa.int32()).to_pylist() == [1, None]


def test_a_hub_name_has_a_commit_and_a_folder_has_none(tmp_path, bert_folder, monkeypatch):
    """By the cache of the hub's files."""

    def commit(name):
        return model_commit(SimpleNamespace(backbone=SimpleNamespace(name=name)))

    there, sha = tmp_path / "models--someone--bert", "0123456789abcdef0123456789abcdef01234567"
    (there / "refs").mkdir(parents=True)
    (there / "refs" / "main").write_text(sha)
    (there / "snapshots" / sha).mkdir(parents=True)
    shutil.copy(f"{bert_folder}/config.json", there / "snapshots" / sha)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found = map(commit, ("someone/bert", "someone/else", bert_folder))
    assert list(found) == [sha, None, None]
