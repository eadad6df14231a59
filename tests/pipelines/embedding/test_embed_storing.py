"""Vectors as they are stored and turned back, and what the manifest says of their model."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.embedding.manifest import model_commit
from pipelines.embedding.quantization import (
    METADATA_KEY,
    Storage,
    passthrough_array,
    read_embeddings,
    scale_of,
    write_part,
)

VECTORS = (np.random.default_rng(0).normal(size=(50, 8)) * np.arange(8)).astype(np.float32)


def test_fewer_dimensions_are_of_unit_length_again():
    plain, unit = (Storage(5, "float32", normalize).shorten(VECTORS) for normalize in (False, True))
    np.testing.assert_array_equal(plain, VECTORS[:, :5])
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(plain, axis=1, keepdims=True), plain, 1e-5)
    zero = np.zeros((1, 8), np.float32)
    np.testing.assert_array_equal(Storage(5, "float32", True).shorten(zero), zero[:, :5])


def test_int8_is_back_within_half_a_scale_and_clipping_is_counted():
    scale = scale_of(VECTORS)
    assert scale[0] == 1.0, "the first dimension is always 0"
    assert scale[7] == pytest.approx(np.abs(VECTORS[:, 7]).max() / 127)
    storage = Storage(8, "int8", False, scale=scale)
    stored, clipped = storage.quantize(VECTORS)
    assert (stored.dtype, clipped.tolist()) == (np.int8, [0] * len(VECTORS))
    back = stored * np.asarray(scale, np.float32)
    assert (np.abs(back - VECTORS) <= np.asarray(scale) * 0.5001).all()
    more, clipped = storage.quantize(VECTORS * 3)
    expected = (np.abs(VECTORS * 3) > 127.5 * np.asarray(scale)).sum(axis=1)
    assert clipped.tolist() == expected.tolist()
    assert expected.any()
    assert (more.min(), more.max()) == (-127, 127)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_part_has_its_columns_and_says_how_to_read_them(tmp_path, dtype):
    scale = scale_of(VECTORS) if dtype == "int8" else None
    facts = {"dimension": 8, "scale": scale and list(scale)}
    kept = (("year", pa.int32()), ("label", pa.string()))
    storage = Storage(8, dtype, False, kept, scale, facts)
    stored = storage.quantize(VECTORS)[0]
    labels = [*["a"] * 48, None, {"b": "ü"}]
    write_part(storage.table(range(50), [range(50), labels], stored), tmp_path / "part-0.parquet")
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    table = pq.read_table(tmp_path / "part-0.parquet")
    element = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}[dtype]
    assert table.schema == pa.schema(
        {"id": pa.int64(), **dict(kept), "embedding": pa.list_(element, 8)}
    )
    assert json.loads(table.schema.metadata[METADATA_KEY.encode()]) == facts
    assert table["label"].to_pylist()[47:] == ["a", None, '{"b": "ü"}']
    ids, vectors = read_embeddings(tmp_path)
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
