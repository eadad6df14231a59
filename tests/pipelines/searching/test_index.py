"""Indexes of an embeddings folder answer as `cotbert search` does, and are whole or not there."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from embeddings_folders import write_folder

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.embedding.embeddings import Embeddings
from pipelines.searching import faiss_index
from pipelines.searching.index import index
from pipelines.searching.opened_index import OpenedIndex
from pipelines.searching.options import IndexOptions
from pipelines.searching.search import nearest

ROWS, DIMENSION = 300, 16


@pytest.fixture(scope="module")
def vectors():
    """Of many lengths, so that inner products do not rank as cosines do."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((ROWS, DIMENSION))
    return (vectors * random.uniform(0.1, 10, (ROWS, 1))).astype(np.float32)


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).standard_normal((5, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def ids():
    """In no order, as those of rows in three files."""
    return [7 * n + (n % 3 << 40) for n in range(ROWS)]


@pytest.fixture
def folder(tmp_path, ids, vectors):
    texts = {"text": [f"text {i}" for i in ids], "year": list(range(ROWS))}
    return write_folder(tmp_path / "e", ids, vectors, texts, model="the model")


def expected_hits(folder, queries, k=10):
    """(Q, k) cosines and ids of `cotbert search`."""
    hits = nearest(Embeddings.open(folder), queries, k)
    return np.stack([h.scores for h in hits]), np.stack([h.ids for h in hits])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def faiss_hits(output, queries, k=10):
    import faiss

    opened = faiss.read_index(str(output / "index.faiss"))
    return opened, *opened.search(unit(queries), k)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_flat_faiss_index_finds_what_search_finds(tmp_path, ids, vectors, queries, dtype, capsys):
    facts = {}
    if dtype == "int8":
        facts["scale"] = (np.abs(vectors).max(axis=0) / 127).tolist()
        vectors = np.rint(vectors / facts["scale"])
    folder = write_folder(tmp_path / "e", ids, vectors.astype(dtype), **facts)
    out = tmp_path / "out"
    assert main(["index", str(folder), "--format", "faiss", "--output", str(out)]) == 0
    assert capsys.readouterr().out.split()[:6] == [
        "factory",
        "Flat",
        "rows",
        "300",
        "left_out",
        "0",
    ]
    opened, scores, found = faiss_hits(out, queries)
    cosines, expected = expected_hits(folder, queries)
    assert found.tolist() == expected.tolist()
    np.testing.assert_allclose(scores, cosines, atol=1e-5)
    assert opened.ntotal == ROWS
    whole = Embeddings.open(folder).blocks()
    plain = np.concatenate([block.vectors for block in whole])
    np.testing.assert_allclose(opened.reconstruct(ids[9]), unit(plain)[9], atol=1e-6)
    products = np.argsort(-(queries @ plain.T), axis=1)[:, :10]
    assert np.array(ids)[products].tolist() != expected.tolist()  # without unit length


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, " --text 'my tickets.csv'"),
        ({"text_column": "body"}, " --text 'my tickets.csv' --text-column body"),
        ({"keep": ["text"]}, ""),
        ({"keep": ["year"]}, " --text 'my tickets.csv'"),
        ({"text_column": "body", "keep": ["body"]}, " --text-column body"),
    ],
)
def test_the_next_search_reads_texts_that_were_not_kept(tmp_path, capsys, facts, words):
    facts = {"inputs": ["my tickets.csv"], **facts}
    folder = write_folder(tmp_path / "e", [1], np.ones((1, 4), np.float32), parts=1, **facts)
    assert main(["index", str(folder), "--output", str(tmp_path / "out")]) == 0
    assert f"out 'YOUR QUERY'{words}\n" in capsys.readouterr().out


def test_equal_scores_are_ordered_as_in_a_search(tmp_path, ids, vectors, queries):
    """Vectors of three directions and of many lengths, so that the last bits of cosines differ."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    folder = write_folder(tmp_path / "e", ids, vectors[np.arange(ROWS) % 3] * lengths)
    index(folder, tmp_path / "index", IndexOptions())
    found = OpenedIndex.open(tmp_path / "index").nearest(queries, 10)
    for hits, scores, expected in zip(found, *expected_hits(folder, queries), strict=True):
        assert hits.ids.tolist() == expected.tolist()
        assert hits.scores.tolist() == scores.tolist()


@pytest.mark.parametrize("factory", ["Flat", "IVF2,Flat", "IVF9,Flat"])
def test_rows_with_negative_ids_are_found(tmp_path, vectors, queries, factory):
    """Also the id -1, with which FAISS fills up where a cluster has fewer rows."""
    import faiss

    ids = [-(2**63), *range(-150, 149)]
    folder = write_folder(tmp_path / "e", ids, vectors)
    index(folder, tmp_path / "index", IndexOptions(factory))
    opened = OpenedIndex.open(tmp_path / "index")
    found, wanted = opened.nearest(queries, ROWS), nearest(Embeddings.open(folder), queries, ROWS)
    assert [one.rows.tolist() for one in found] == [one.ids.tolist() for one in wanted]
    if (clusters := faiss.try_extract_index_ivf(opened.index)) is not None:
        clusters.nprobe = 1
        (hits,) = opened.nearest(vectors[150:151], ROWS)
        assert hits.rows[0] == -1
        assert len(hits) == len({*hits.rows}) < ROWS


@pytest.mark.parametrize("factory", ["Flat", "HNSW32", "IVF2,Flat"])
def test_an_index_finds_what_a_search_by_passages_finds(tmp_path, ids, vectors, queries, factory):
    """Rows have no, few and many passages; those of one row may fill all places."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 4, ROWS)
    near = int(np.argmax(unit(vectors) @ unit(queries[:1])[0]))
    counts[near] = 70
    parts = [vectors[row] + rng.normal(size=(n, DIMENSION)) / 4 for row, n in enumerate(counts)]
    kind = pa.list_(pa.list_(pa.float32(), DIMENSION))
    kept = {"passages": pa.array([part.tolist() for part in parts], kind)}
    folder = write_folder(tmp_path / "e", ids, vectors, kept, passage_words=60)
    index(folder, tmp_path / "index", IndexOptions(factory))
    opened, embeddings = OpenedIndex.open(tmp_path / "index"), Embeddings.open(folder)
    assert opened.index.ntotal == np.maximum(counts, 1).sum()
    drawn = faiss_index.sample(embeddings, ROWS, seed=1)
    lengths = np.linalg.norm(drawn, axis=1)
    assert (lengths[counts == 0] > 1 - 1e-6).all()
    assert (lengths[counts > 0] < 1 - 1e-6).all(), "half sums of a text and a passage"
    expected = nearest(embeddings, queries, 10)
    for found, wanted in zip(opened.nearest(queries, 10), expected, strict=True):
        if factory == "HNSW32":
            assert len(set(found.rows) & set(wanted.ids)) >= 5
            continue
        assert found.rows.tolist() == wanted.ids.tolist()
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
    whole = nearest(
        replace(embeddings, manifest={**embeddings.manifest, "passage_words": None}), queries, 10
    )
    assert [one.ids.tolist() for one in whole] != [one.ids.tolist() for one in expected]
    everything = [len(one) for one in opened.nearest(queries, 10**6)]
    assert everything == [ROWS] * len(queries) or factory == "HNSW32"


def test_many_clusters_are_searched_unless_the_index_has_another_number(tmp_path, folder):
    import faiss

    def searched(factory, written=None):
        index(folder, tmp_path / factory, IndexOptions(factory))
        if written:
            file = str(tmp_path / factory / "index.faiss")
            changed = faiss.read_index(file)
            faiss.extract_index_ivf(changed).nprobe = written
            faiss.write_index(changed, file)
        return faiss.extract_index_ivf(OpenedIndex.open(tmp_path / factory).index).nprobe

    found = searched("IVF32,Flat"), searched("PCA8,IVF200,Flat"), searched("IVF5,Flat", 3)
    assert found == (16, 25, 3)


@pytest.mark.parametrize(
    ("factory", "written"),
    [("HNSW16", 16), ("PCA8,HNSW16", 16), ("HNSW16", 9), ("HNSW16,RFlat", 16)],
)
def test_a_graph_is_followed_further_unless_the_index_has_another_number(
    tmp_path, folder, factory, written
):
    import faiss

    def graph(index):
        inner = faiss.downcast_index(index.index)
        if factory.endswith("RFlat"):
            return faiss.downcast_index(inner.base_index)
        return faiss.downcast_index(inner.index) if factory.startswith("PCA") else inner

    index(folder, tmp_path / "i", IndexOptions(factory))
    file = str(tmp_path / "i" / "index.faiss")
    changed = faiss.read_index(file)
    graph(changed).hnsw.efSearch = written
    faiss.write_index(changed, file)
    assert graph(OpenedIndex.open(tmp_path / "i").index).hnsw.efSearch == (
        256 if written == 16 else 9
    )


@pytest.mark.parametrize(("written", "used"), [(1, 20), (3, 3)])
def test_more_rows_are_refined_than_returned(tmp_path, folder, vectors, written, used):
    import faiss

    index(folder, tmp_path / "i", IndexOptions("SQ4,RFlat"))
    file = str(tmp_path / "i" / "index.faiss")
    changed = faiss.read_index(file)
    faiss.downcast_index(changed.index).k_factor = written
    faiss.write_index(changed, file)
    opened = OpenedIndex.open(tmp_path / "i")
    assert faiss.downcast_index(opened.index.index).k_factor == used
    assert [len(hits) for hits in opened.nearest(vectors[:2], ROWS)] == [ROWS, ROWS]


@pytest.mark.parametrize("factory", ["IVF8,Flat", "HNSW16", "PCA8,Flat"])
def test_another_factory_is_trained_on_a_sample_drawn_by_the_seed(
    tmp_path, folder, queries, factory
):
    import faiss

    drawn = {"sample": 200, "seed": 3}
    options = IndexOptions(factory, **({} if factory == "HNSW16" else drawn))
    if factory == "HNSW16":
        with pytest.raises(UserError, match="'HNSW16' is not trained, so --sample and --seed"):
            index(folder, tmp_path / "refused", IndexOptions(factory, **drawn))
        assert not (tmp_path / "refused").exists()
    for name in ("one", "two"):
        index(folder, tmp_path / name, options)
    opened, _, found = faiss_hits(tmp_path / "one", queries)
    assert opened.ntotal == ROWS
    assert found.tolist() == faiss_hits(tmp_path / "two", queries)[2].tolist()
    expected = expected_hits(folder, queries)[1]
    overlap = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, expected, strict=True)])
    assert overlap > 0.3
    if factory.startswith("IVF"):
        faiss.extract_index_ivf(opened).nprobe = 8  # all clusters: exact
        assert opened.search(unit(queries), 10)[1].tolist() == expected.tolist()
    manifest = read_json(tmp_path / "one" / "manifest.json")
    assert manifest["index"] == {"format": "faiss", **vars(options)}


def test_the_sample_is_drawn_from_the_whole_folder_by_the_seed(folder, vectors):
    opened = Embeddings.open(folder)
    drawn = faiss_index.sample(opened, 60, seed=1)
    whole = faiss_index.unit(vectors)
    rows = [int(np.flatnonzero((whole == v).all(axis=1))[0]) for v in drawn]
    assert len(set(rows)) == 60
    assert (np.diff(rows) > 0).all()
    assert rows[0] < 50 < 250 < rows[-1]
    assert (faiss_index.sample(opened, 60, seed=1) == drawn).all()
    assert (faiss_index.sample(opened, 60, seed=2) != drawn).any()
    assert (faiss_index.sample(opened, 10**9, seed=1) == whole).all()


def test_an_index_says_what_it_was_made_of(tmp_path, ids, vectors):
    vectors = vectors.copy()
    vectors[5] = 0
    folder = write_folder(tmp_path / "e", ids, vectors, model="the model")
    result = index(folder, tmp_path / "out", IndexOptions())
    counts = {"rows": ROWS - 1, "left_out": 1}
    assert result.items() >= {**counts, "dimension": DIMENSION}.items()
    assert read_json(tmp_path / "out" / "result.json") == result
    manifest = read_json(tmp_path / "out" / "manifest.json")
    assert manifest.items() >= {**counts, "made_of": str(folder)}.items()
    assert manifest["embeddings"]["model"] == "the model"


def check_refused(folder, output, message, factory="Flat", **options):
    """The job ends with this error and leaves nothing."""
    before = sorted(output.parent.iterdir())
    with pytest.raises(UserError, match=message):
        index(folder, output, IndexOptions(factory, **options))
    assert sorted(output.parent.iterdir()) == before


def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    tmp_path, folder, ids, vectors, monkeypatch
):
    out = tmp_path / "out"
    rows, larger = "give another --factory, or more rows", "give a larger --sample, or another --f"
    for factory, sample, advice in (
        ("Nonsense", 300, rows),
        ("IVF301,Flat", 300, rows),
        ("IVF8,Flat", 7, larger),
    ):
        message = rf"FAISS cannot make an index '{factory}' of 300 rows.*: {advice}"
        check_refused(folder, out, message, factory, sample=sample)
    check_refused(
        folder, out, r"dimensions \(Number of training points \(7\)", "IVF8,Flat", sample=7
    )
    check_refused(folder, out, r"dimensions \('metric == METRIC_L2' failed\): give", "LSH")
    index(folder, tmp_path / "index", IndexOptions())
    check_refused(tmp_path / "index", out, rf"is an index: give .* was made of, '{folder}'")
    few = write_folder(tmp_path / "few", ids[:5], vectors[:5], parts=1)
    check_refused(few, out, "'NSG32' of 5 rows .* smaller than 100.*: give another", "NSG32")
    check_refused(folder, out, "leave IDMap out", "IDMap,Flat")
    check_refused(folder, out, "sample is 0", sample=0)
    check_refused(folder, out, "seed is -1", seed=-1)
    check_refused(tmp_path / "none", out, "is not a folder")
    zeros = write_folder(tmp_path / "zeros", ids, np.zeros_like(vectors))
    check_refused(zeros, out, r"none of the 300 rows has a direction \(all are zeros, null or NaN")
    check_refused(folder, tmp_path / "zeros", "already holds something")
    monkeypatch.setitem(sys.modules, "faiss", None)
    message = r"needs faiss: install with pip install 'faiss-cpu<"
    check_refused(folder, out, message)
