"""cotbert index --update: the extended index against one of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from embeddings_folders import change_manifest, write_folder

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from pipelines.cli import main
from pipelines.embedding.digests import PartDigests, text_digests, write_digests
from pipelines.searching.index import index
from pipelines.searching.opened_index import OpenedIndex
from pipelines.searching.options import IndexOptions

DIMENSION = 16
FLAT = IndexOptions()
# The folders of one model, whose rows may be put together.
SAME = {"model": "the model", "model_digest": "abc"}


def vector(text):
    return np.random.default_rng([*text.encode()]).standard_normal(DIMENSION).astype(np.float32)


def embeddings(folder, texts, ids=None, **facts):
    """What `cotbert embed` makes of these texts by id: each text has a vector of its own."""
    ids, said = ids or [*texts], [*texts.values()]
    said = said * (len(ids) // len(said))
    vectors = np.stack([vector(text) for text in said])
    kept = {}
    if "passage_words" in facts:
        lists = [[vector(f"{text} {n}").tolist() for n in range(len(text) % 4)] for text in said]
        kept["passages"] = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    write_folder(folder, ids, vectors, kept, parts=1, **{**SAME, **facts})
    (folder / "digests").mkdir()
    described = PartDigests(text_digests(said), np.zeros(len(ids), bool), "block", {})
    write_digests(folder / "digests" / "part-000000.parquet", pa.array(ids, pa.int64()), described)
    return folder


@pytest.fixture
def texts():
    return {7 * n: f"text {n}" for n in range(100)}


def nearest(folder, queries, top=5):
    import faiss

    opened = faiss.read_index(str(folder / "index.faiss"))
    scores, ids = opened.search(queries, top)
    return opened.ntotal, ids.tolist(), scores


def test_a_flat_index_follows_its_embeddings(tmp_path, texts, capsys):
    new = {n: text for n, text in texts.items() if n != 14}
    new |= {21: "another text", 5: "new", 10_000: "newer"}
    old, now = embeddings(tmp_path / "v1", texts), embeddings(tmp_path / "v2", new)
    index(old, tmp_path / "i1", FLAT)
    update = ["--update", str(tmp_path / "i1"), "--output", str(tmp_path / "i2")]
    assert main(["index", str(now), *update]) == 0
    said = capsys.readouterr()
    assert "101 rows indexed, 0 left out. 3 were added and 2 dropped." in said.out
    assert "index    row 101/101" in said.err
    index(now, tmp_path / "whole", FLAT)
    queries = np.stack([vector(text) for text in ("another text", "new", "text 2", "text 3")])
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    found, asked = nearest(tmp_path / "i2", queries), nearest(tmp_path / "whole", queries)
    assert found[:2] == asked[:2]
    np.testing.assert_allclose(found[2], asked[2], atol=1e-6)
    assert [hits[0] for hits in found[1][:2]] == [21, 5]
    assert nearest(tmp_path / "i1", queries)[0] == 100, "the old index stays"

    newest = embeddings(tmp_path / "v3", {**new, 3: "one more"})
    assert index(newest, tmp_path / "i3", FLAT, tmp_path / "i2")["added"] == 1
    manifest = read_json(tmp_path / "i3" / "manifest.json")
    assert (manifest["rows"], manifest["made_of"]) == (102, str(newest))


def test_an_index_with_passages_follows_its_embeddings(tmp_path, texts):
    new = {n: text for n, text in texts.items() if n % 4} | {21: "another text!", 5: "a new one"}
    old, now = (
        embeddings(tmp_path / name, some, passage_words=60)
        for name, some in (("v1", texts), ("v2", new))
    )
    index(old, tmp_path / "i1", FLAT)
    made = index(now, tmp_path / "i2", FLAT, tmp_path / "i1")
    assert (made["rows"], made["added"], made["dropped"]) == (76, 2, 26)
    index(now, tmp_path / "whole", FLAT)
    queries = np.stack([vector(text) for text in ("another text! 0", "text 3", "text 14 1")])
    found, expected = (
        OpenedIndex.open(tmp_path / name).nearest(queries, 5) for name in ("i2", "whole")
    )
    for one, other in zip(found, expected, strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-6)
    assert 21 in found[0].rows
    facts = read_json(tmp_path / "i1" / "manifest.json")
    write_json(tmp_path / "i1" / "manifest.json", {k: facts[k] for k in facts if k != "passages"})
    with pytest.raises(UserError, match="made by a version that left passages out: index all"):
        index(now, tmp_path / "i3", FLAT, tmp_path / "i1")


def test_another_kind_of_index_grows_and_does_not_shrink(tmp_path, texts):
    old = embeddings(tmp_path / "v1", texts)
    more = embeddings(tmp_path / "v2", {**texts, 5: "new"})
    less = embeddings(tmp_path / "v3", {n: text for n, text in texts.items() if n != 14})
    index(old, tmp_path / "i1", IndexOptions("HNSW16"))
    made = index(more, tmp_path / "i2", FLAT, tmp_path / "i1")
    assert (made["rows"], made["added"], made["dropped"]) == (101, 1, 0)
    query = vector("new")[None] / np.linalg.norm(vector("new"))
    assert nearest(tmp_path / "i2", query, 1)[:2] == (101, [[5]])
    assert read_json(tmp_path / "i2" / "manifest.json")["index"]["factory"] == "HNSW16"
    with pytest.raises(UserError, match="1 row changed or gone since, and only an index"):
        index(less, tmp_path / "i3", FLAT, tmp_path / "i1")
    assert not (tmp_path / "i3").exists()


def test_an_index_that_cannot_grow_is_refused(tmp_path, texts):
    old = embeddings(tmp_path / "v1", {**texts, 1: "one", 2: "two"}, group=200)
    new = embeddings(tmp_path / "v2", {**texts, 1: "one", 2: "two", 3: "three"}, group=200)
    index(old, tmp_path / "i1", IndexOptions("NSG16"))
    message = "FAISS cannot make an index 'NSG16' of 103 rows .*incremental.*: index all rows"
    with pytest.raises(UserError, match=message):
        index(new, tmp_path / "i2", FLAT, tmp_path / "i1")
    assert not (tmp_path / "i2").exists()


def test_other_vectors_and_options_are_refused(tmp_path, texts):
    old = embeddings(tmp_path / "v1", texts)
    index(old, tmp_path / "i1", FLAT)
    other = embeddings(tmp_path / "v2", texts, model_digest="def")
    twice = embeddings(tmp_path / "twice", {7: "a text"}, [7, 7])
    bare = write_folder(tmp_path / "v3", [1], vector("a")[None], parts=1, **SAME)

    def refused(folder, message, options=FLAT):
        with pytest.raises(UserError, match=message):
            index(folder, tmp_path / "i2", options, tmp_path / "i1")
        assert not (tmp_path / "i2").exists()

    with pytest.raises(UserError, match="v1' is not an index: give a folder of `cotbert index`"):
        index(other, tmp_path / "i2", FLAT, old)
    refused(other, "made of embeddings of another model_digest")
    by_int8 = embeddings(tmp_path / "v4", texts, computed_in="int8")
    refused(by_int8, r"another computed_in \(None, here 'int8'\): index all rows")
    refused(old, r"takes the options of .* leave --factory", IndexOptions("HNSW16"))
    refused(old, r"takes the options of .* leave --factory", IndexOptions("Flat"))
    refused(twice, "twice' have the id 7 2 times: an update needs ids that")
    refused(bare, "v3' have no digests/, by which an update sees")
    change_manifest(old, x=1)
    refused(old, "v1' were made again after index")
