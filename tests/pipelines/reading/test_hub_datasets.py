"""Data sets of the Hugging Face hub, as folders saved on this machine; the hub itself is absent."""

from __future__ import annotations

import sys

import pytest
from read_inputs import read_all

from cotbert_core.errors import UserError
from pipelines.reading import hub_datasets
from pipelines.reading.hub_datasets import parse
from pipelines.reading.readers import read
from pipelines.reading.sources import plan, stamps

datasets = pytest.importorskip("datasets")

ROWS = {"text": ["one", None, "two dogs", "", "three"], "id": [7, 8, 9, 10, 11]}


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A data set with two splits."""
    monkeypatch.setattr(hub_datasets, "SHARD_ROWS", 2)
    train = datasets.Dataset.from_dict(ROWS)
    test = datasets.Dataset.from_dict({"text": ["test"], "id": [1]})
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "set")
    return f"hf:{tmp_path / 'set'}"


def test_the_rows_of_a_data_set(saved):
    found = read_all(saved)
    assert found[:3] == (["one", "two dogs", "three"], {"null": 1, "empty": 1}, [0, 2, 4])
    assert read_all(saved, id_column="id").ids == [7, 9, 11]
    assert read_all(f"{saved}:test").texts == ["test"]
    made = plan([saved])
    shards = [(s.start, s.stop, s.first_row) for s in made.shards]
    assert shards == [(0, 2, 0), (2, 4, 2), (4, 5, 4)]
    assert min(stamps(made)[saved]) > 0


def test_a_single_data_set_has_no_splits(tmp_path):
    datasets.Dataset.from_dict(ROWS).save_to_disk(tmp_path / "one")
    assert read_all(f"hf:{tmp_path / 'one'}").texts == ["one", "two dogs", "three"]
    with pytest.raises(UserError, match="no split 'test': it is a single data set; leave out"):
        read_all(f"hf:{tmp_path / 'one'}:test")
    datasets.Dataset.from_dict(ROWS, split="test").save_to_disk(tmp_path / "own")
    assert len(read_all(f"hf:{tmp_path / 'own'}:test").texts) == 3


def test_a_data_set_that_is_saved_again_is_read_again(tmp_path):
    for texts in (["one"], ["two", "three"]):
        datasets.Dataset.from_dict({"text": texts}).save_to_disk(tmp_path / "set")
        assert read_all(f"hf:{tmp_path / 'set'}").texts == texts


def test_a_relative_folder_is_the_callers(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = plan(["hf:set:test", f"{saved}:test"])
    assert made.files == [f"{saved}:test"]
    monkeypatch.chdir("/")  # workers run in another folder
    hub_datasets._opened.cache_clear()
    assert [piece.texts for piece in read(made.shards[0], made)] == [["test"]]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("hf:imdb", ("imdb", None, "train")),
        ("hf:a/b:test", ("a/b", None, "test")),
        ("hf:wikitext:wikitext-2-v1", ("wikitext", "wikitext-2-v1", "train")),
        ("hf:wikitext:wikitext-2-v1:validation", ("wikitext", "wikitext-2-v1", "validation")),
    ],
)
def test_name_configuration_and_split(item, expected):
    assert parse(item) == expected


@pytest.mark.parametrize("item", ["hf:", "hf:a:", "hf::train", "hf:a:b:c:d"])
def test_what_is_no_name_is_reported(item):
    with pytest.raises(UserError, match="is not a data set: write hf:NAME"):
        plan([item])


@pytest.mark.parametrize(
    ("split", "column", "message"),
    [
        (":dev", "text", "has no split 'dev': it has train, test"),
        ("", "title", "has no column 'title': it has text, id"),
        ("", "id", "column 'id' is of type int64: it must be text"),
    ],
)
def test_a_missing_split_or_column_is_reported(saved, split, column, message):
    with pytest.raises(UserError, match=message):
        plan([saved + split], column)


def test_a_hub_out_of_reach_is_one_sentence(monkeypatch):
    def refuse(*_, **__):
        raise ConnectionError("Couldn't reach 'no/such' on the Hub\nand more")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    hub_datasets._opened.cache_clear()
    with pytest.raises(UserError, match=(
        r"^input 'hf:no/such' cannot be loaded \(Couldn't reach 'no/such' on the Hub\): check its"
    )):  # fmt: skip
        plan(["hf:no/such"])


def test_the_extra_is_named_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    hub_datasets._opened.cache_clear()
    with pytest.raises(UserError, match=r"needs datasets: install with pip install 'datasets<"):
        plan(["hf:imdb"])
