"""The texts of ids come from the shards that hold them, under the ids that embed gave."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embeddings_folders import write_folder

from cotbert_core.errors import UserError
from pipelines.reading import sources
from pipelines.reading.readers import read
from pipelines.searching import texts as module
from pipelines.searching.embeddings import Embeddings
from pipelines.searching.texts import input_plan, texts_of


@pytest.fixture
def folder(tmp_path):
    """Makes an embeddings folder whose manifest says this."""

    def make(**manifest):
        vectors = np.ones((2, 3), np.float32)
        home = tmp_path / f"e{len(list(tmp_path.iterdir()))}"
        return Embeddings.open(write_folder(home, [1, 2], vectors, parts=1, **manifest))

    return make


@pytest.fixture
def shards_read(monkeypatch):
    """The first row of each shard that is read."""
    firsts = []

    def counted(shard, plan):
        firsts.append(shard.first_row)
        return read(shard, plan)

    monkeypatch.setattr(module, "read", counted)
    return firsts


def test_row_numbers_lead_to_their_shards(tmp_path, folder, shards_read, monkeypatch):
    monkeypatch.setattr(module.sources, "plan", partial(sources_plan, shard_bytes=60))
    lines = [f"line {n} of a" if n % 7 else "" for n in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": f"b {n}"}) for n in range(9)))
    inputs = [str(tmp_path / "b.jsonl"), str(tmp_path / "a.txt")]
    plan = input_plan(folder(files=2).manifest, inputs, "text")
    assert len(plan.shards) > 10
    second = 1 << sources.FILE_BITS
    there = {1: "line 1 of a", 48: "line 48 of a", second + 8: "b 8"}
    assert texts_of(plan, there) == there
    assert len(shards_read) == 3
    # No such rows: an empty line, one behind the end of a file, a negative one.
    assert texts_of(plan, [7, 999, second + 9, -1]) == {}
    everything = {i: t for s in plan.shards for p in read(s, plan)
                  for i, t in zip(p.ids, p.texts, strict=True)}  # fmt: skip
    assert texts_of(plan, everything) == everything


sources_plan = sources.plan


def test_ids_of_a_column_are_looked_for_until_all_are_found(tmp_path, folder, shards_read):
    table = pa.table({"number": [9, 4, 7, 2], "sentence": ["nine", "four", "seven", "two"]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    plan = input_plan(
        folder(id_column="number").manifest, [str(tmp_path / "a.parquet")], "sentence"
    )
    assert texts_of(plan, [4, 9]) == {9: "nine", 4: "four"}
    assert shards_read == [0, 1]
    assert texts_of(plan, [2, 5]) == {2: "two"}
    assert texts_of(plan, []) == {}


def test_another_number_of_files_has_other_row_numbers(tmp_path, folder):
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(
        UserError, match=r"--text names 1 files and the embeddings were made from 2"
    ):
        input_plan(folder(files=2).manifest, [str(tmp_path / "a.txt")], "text")
    with pytest.raises(UserError, match=r"'.*none\.txt' does not exist"):
        input_plan(folder().manifest, [str(tmp_path / "none.txt")], "text")
