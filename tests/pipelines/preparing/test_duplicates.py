"""The duplicate search on disk against one with a set, in buckets so small that there are many."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest

from pipelines.preparing import buckets, duplicates
from pipelines.preparing.duplicates import chunks, keep_sample, mark_first, read_flags


def shards(folder, sizes, distinct, seed=0):
    """Files of ids, among them few distinct ones, the smallest and the largest possible."""
    random = np.random.default_rng(seed)
    pool = random.integers(0, 1 << 63, distinct, dtype=np.int64)
    pool[:2] = 0, (1 << 63) - 1
    ids = [random.choice(pool, size) for size in sizes]
    files = [folder / f"{number}.ids" for number in range(len(sizes))]
    for file, values in zip(files, ids, strict=True):
        values.tofile(file)
    return files, [int(i) for values in ids for i in values]


def test_flags_are_made_without_fallocate(tmp_path, monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "posix_fallocate")
    assert duplicates.create(tmp_path / "keep", 1000).tolist() == [0] * 1000


def first_by_set(ids):
    seen = set()
    return [not (i in seen or seen.add(i)) for i in ids]


SIZES = ([1], [5, 0, 3], [100, 1, 0, 250, 37])


@pytest.mark.parametrize("chunk", [7, 1 << 20])
@pytest.mark.parametrize("bucket_records", [5, 100, 1000])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_first_row_of_each_id_stays(tmp_path, monkeypatch, sizes, bucket_records, chunk):
    monkeypatch.setattr(buckets, "BUCKET_RECORDS", bucket_records)
    monkeypatch.setattr(duplicates, "CHUNK_ROWS", chunk)
    files, ids = shards(tmp_path, sizes, distinct=60)
    count = mark_first(files, tmp_path / "keep", tmp_path)
    expected = first_by_set(ids)
    assert read_flags(tmp_path / "keep", 0, len(ids)).tolist() == expected
    assert count == sum(expected) == len(set(ids))
    assert not list(tmp_path.glob("records-*"))
    if len(ids) > 100:
        assert expected != first_by_set(ids[::-1])[::-1], "premise: first and last differ"


def test_many_buckets_are_filled_and_there_is_a_most(tmp_path, monkeypatch):
    files, ids = shards(tmp_path, [3000], distinct=2000)
    sizes = []

    def counted(*arguments):
        for records in buckets.buckets(*arguments):
            sizes.append(len(records))
            yield records

    monkeypatch.setattr(duplicates, "buckets", counted)
    monkeypatch.setattr(buckets, "BUCKET_RECORDS", 100)
    mark_first(files, tmp_path / "keep", tmp_path)
    assert len(sizes) == 32
    assert max(sizes) < 100
    assert sum(sizes) == len(set(ids)), "in one chunk, repeats are not dealt out"
    monkeypatch.setattr(buckets, "MOST_BUCKETS", 8)
    mark_first(files, tmp_path / "keep", tmp_path)
    assert len(sizes) == 32 + 8
    assert read_flags(tmp_path / "keep", 0, len(ids)).tolist() == first_by_set(ids)


@pytest.mark.parametrize("count", [1, 17, 59, 60, 1000])
@pytest.mark.parametrize("bucket_records", [50, 1000])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_sample_holds_the_first_ids_in_its_order(
    tmp_path, monkeypatch, sizes, bucket_records, count
):
    monkeypatch.setattr(duplicates, "CHUNK_ROWS", 64)
    monkeypatch.setattr(buckets, "BUCKET_RECORDS", bucket_records)
    files, ids = shards(tmp_path, sizes, distinct=60)
    mark_first(files, tmp_path / "keep", tmp_path)
    left = keep_sample(partial(chunks, files), tmp_path / "keep", count, tmp_path)
    sampled = set(sorted(set(ids), key=lambda i: i * int(duplicates._ODD) % (1 << 63))[:count])
    expected = [first and i in sampled for first, i in zip(first_by_set(ids), ids, strict=True)]
    assert read_flags(tmp_path / "keep", 0, len(ids)).tolist() == expected
    assert left == len(sampled)
    assert not list(tmp_path.glob("records-*"))
