"""The texts of ids come from the shards that hold them, under the ids that embed gave."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.errors import UserError
from pipelines.reading.read_plan import FILE_BITS
from pipelines.reading.readers import read
from pipelines.searching import texts as module
from pipelines.searching.texts import input_plan, texts_of


def found_texts(plan, ids):
    """The text of each row, whose number is the same as its id."""
    return texts_of(plan, {row: row for row in ids}, lambda *_: True)


@pytest.fixture
def shards_read(monkeypatch):
    """The first row of each shard that is read."""
    firsts = []

    def counted(shard, plan):
        firsts.append(shard.first_row)
        return read(shard, plan)

    monkeypatch.setattr(module, "read", counted)
    return firsts


def test_row_numbers_lead_to_their_shards(tmp_path, shards_read, monkeypatch):
    monkeypatch.setattr(module, "SHARD_BYTES", 60)
    lines = [f"line {n} of a" if n % 7 else "" for n in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": f"b {n}"}) for n in range(9)))
    inputs = [str(tmp_path / "b.jsonl"), str(tmp_path / "a.txt")]
    plan = input_plan({"files": 2}, inputs, "text")
    assert len(plan.shards) > 10
    second = 1 << FILE_BITS
    there = {1: "line 1 of a", 48: "line 48 of a", second + 8: "b 8"}
    assert found_texts(plan, there) == there
    assert len(shards_read) == 3
    # No such rows: an empty line, one behind the end of a file, a negative one.
    assert found_texts(plan, [7, 999, second + 9, -1]) == {}
    pieces = [piece for shard in plan.shards for piece in read(shard, plan)]
    everything = {
        i: text for piece in pieces for i, text in zip(piece.ids, piece.texts, strict=True)
    }
    assert found_texts(plan, everything) == everything


def test_ids_of_a_column_are_looked_for_until_all_are_found(tmp_path, shards_read):
    table = pa.table({"number": [9, 4, 7, 2], "sentence": ["nine", "four", "seven", "two"]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    plan = input_plan({"id_column": "number"}, [str(tmp_path / "a.parquet")], "sentence")
    assert found_texts(plan, [4, 9]) == {9: "nine", 4: "four"}
    assert shards_read == [0, 1]
    assert found_texts(plan, [2, 5]) == {2: "two"}
    assert found_texts(plan, []) == {}


def test_rows_of_one_id_have_the_texts_that_were_embedded(tmp_path):
    table = pa.table({"number": [1, 1, 2, 1], "text": ["a", "b", "c", "d"]})
    pq.write_table(table, tmp_path / "a.parquet")
    plan = input_plan({"id_column": "number"}, [str(tmp_path / "a.parquet")], "text")
    embedded = ["d", "a", "c", "another", "b"]
    found = texts_of(plan, {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}, lambda row, text: embedded[row] == text)
    assert found == {0: "d", 1: "a", 2: "c", 3: "a", 4: "b"}, "or the first one"


def test_another_number_of_files_has_other_row_numbers(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    for name, message in (
        ("a.txt", "--text names 1 file and the embeddings were made from 2"),
        ("none.txt", r"'.*none\.txt' does not exist"),
    ):
        with pytest.raises(UserError, match=message):
            input_plan({"files": 2}, [str(tmp_path / name)], "text")
    with pytest.raises(UserError, match=r"for --id-column of `cotbert embed`: give csv"):
        input_plan({"id_column": "key"}, [str(tmp_path / "a.txt")], "text")
