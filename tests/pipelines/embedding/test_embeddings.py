"""An embeddings folder is read as it was written, and refused when it is not whole."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embeddings_folders import change_manifest, write_folder, write_part

from cotbert_core.errors import UserError
from pipelines.embedding import parts as module
from pipelines.embedding.embed import read_embeddings
from pipelines.embedding.embeddings import Embeddings
from pipelines.searching.search import nearest

ROWS, DIMENSION = 40, 6


@pytest.fixture
def vectors():
    return np.random.default_rng(0).standard_normal((ROWS, DIMENSION)).astype(np.float32)


@pytest.fixture
def ids():
    return np.random.default_rng(1).permutation(1000)[:ROWS]


def read(folder):
    """(ids, row numbers, vectors, left out) of all blocks."""
    blocks = list(Embeddings.open(folder).blocks())
    names = ("ids", "rows", "vectors")
    arrays = [np.concatenate([getattr(b, name) for b in blocks]) for name in names]
    return *arrays, sum(b.left_out for b in blocks)


@pytest.mark.parametrize(
    ("block_rows", "dtype"), [(1, "float32"), (3, "float16"), (8192, "float32")]
)
def test_blocks_hold_every_row_once(tmp_path, ids, vectors, monkeypatch, block_rows, dtype):
    """In float32, whatever their type in the parts."""
    monkeypatch.setattr(module, "BLOCK_ROWS", block_rows)
    stored = vectors.astype(dtype)
    found_ids, rows, found, left_out = read(write_folder(tmp_path / "e", ids, stored))
    assert (found_ids.tolist(), rows.tolist(), left_out) == (ids.tolist(), [*range(ROWS)], 0)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, stored)


@pytest.mark.parametrize("scale", [0.25, [0.25], [0.5, 0.25, 1.0, 2.0, 4.0, 8.0]])
def test_int8_is_multiplied_by_its_scale(tmp_path, ids, scale):
    stored = np.random.default_rng(2).integers(-127, 128, (ROWS, DIMENSION)).astype(np.int8)
    folder = write_folder(tmp_path / "e", ids, stored, scale=scale)
    expected = stored * np.asarray(scale, np.float32)
    np.testing.assert_array_equal(read(folder)[2], expected)
    np.testing.assert_array_equal(read_embeddings(folder)[1], expected)


def test_int8_with_a_scale_for_each_row_is_read_as_its_direction(tmp_path, ids):
    """Which the scale does not change; a kept column may have its name if one scale is for all."""
    stored = np.random.default_rng(2).integers(-127, 128, (ROWS, DIMENSION)).astype(np.int8)
    scales = {"scale": np.linspace(0.1, 1, ROWS, dtype=np.float32)}
    folder = write_folder(tmp_path / "e", ids, stored, scales, scale="row")
    np.testing.assert_array_equal(read(folder)[2], stored)
    assert Embeddings.open(folder).text_columns == []
    kept = {"scale": [f"{i} of 10" for i in ids]}
    folder = write_folder(tmp_path / "kept", ids, stored, kept, scale=0.5)
    assert Embeddings.open(folder).text_columns == ["scale"]


def test_rows_without_a_direction_are_counted_and_left_out(tmp_path, ids, vectors, capsys):
    """Zeros, a NaN and a null; the other rows keep their numbers and ids."""
    vectors[3], vectors[17, 2], kept = 0, np.nan, [f"t{i}" for i in ids]
    folder = write_folder(tmp_path / "e", ids, vectors, {"text": kept}, parts=2)
    part = folder / "data" / "part-000001.parquet"
    table = pq.read_table(part)
    lists = table["embedding"].to_pylist()
    lists[4][1] = None
    column = pa.array(lists, table.schema.field("embedding").type)
    pq.write_table(table.set_column(2, "embedding", column), part, row_group_size=3)
    there = [row for row in range(ROWS) if row not in (3, 17, 24)]
    found_ids, rows, found, left_out = read(folder)
    assert (found_ids.tolist(), rows.tolist(), left_out) == (ids[there].tolist(), there, 3)
    assert (found == vectors[there]).all()
    (hits,) = nearest(Embeddings.open(folder), np.ones((1, DIMENSION)), ROWS)
    assert sorted(hits.rows) == there
    assert "3 rows have no direction (zeros, null or NaN)" in capsys.readouterr().err


def test_a_kept_column_is_read_in_the_row_groups_asked_for(tmp_path, ids, vectors, monkeypatch):
    texts = [f"text {i}" for i in ids]
    opened = Embeddings.open(write_folder(tmp_path / "e", ids, vectors, {"text": texts}))
    assert opened.text_columns == ["text"]
    groups = []
    batches = module.batches

    def counted(name, asked, columns, rows):
        groups.extend(asked)
        return batches(name, asked, columns, rows)

    monkeypatch.setattr(module, "batches", counted)
    wanted = [39, 0, 14, 13, 12, 0]
    assert opened.values("text", wanted) == {row: texts[row] for row in wanted}
    assert len(groups) == 4  # of the nine
    assert opened.values("text", []) == {}


def test_what_is_no_finished_folder_is_refused(tmp_path, ids, vectors):
    folder = write_folder(tmp_path / "e", ids, vectors)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    shutil.copytree(folder, tmp_path / "e.partial")
    shutil.copytree(folder, tmp_path / "bare")
    for part in (tmp_path / "bare").glob("data/part-*"):
        part.unlink()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "manifest.json").write_text('{"rows": 3, "encoder": "x"}')
    for name, message in {
        "none": "is not a folder",
        "file": "is not a folder",
        "empty": r"have no manifest\.json: give a finished folder of `cotbert embed`",
        "e.partial": "the work of an unfinished command: .* and then the folder 'e' beside it",
        "bare": r"hold no data/part-\*\.parquet",
        "corpus": "is not the manifest of embeddings: it has no 'dimension': give a folder of",
    }.items():
        with pytest.raises(UserError, match=message):
            Embeddings.open(tmp_path / name)


def test_parts_that_do_not_fit_are_refused(tmp_path, ids, vectors):
    folder = write_folder(tmp_path / "e", ids, vectors)
    part = folder / "data" / "part-000002.parquet"
    whole = part.read_bytes()

    def check_refused(message):
        with pytest.raises(UserError, match=message):
            Embeddings.open(folder)

    table = pa.table({"id": ids[26:], "embedding": list(vectors[26:])})
    for write in (
        lambda: write_part(part, ids[26:], vectors[26:, :5]),
        lambda: write_part(part, ids[26:], vectors[26:].astype(np.float16)),
        lambda: write_part(part, ids[26:], vectors[26:], {"text": ["t"] * 14}),
        lambda: pq.write_table(table, part),
        lambda: pq.write_table(table.drop_columns(["id"]), part),
    ):
        write()
        check_refused(r"part-000002.*' does not fit manifest\.json or the first part: it must have")
    part.write_bytes(whole[:-9])
    check_refused("part-000002.*' cannot be read")
    part.unlink()
    check_refused(r"hold 26 rows and manifest\.json says 40: parts are missing")
    part.write_bytes(whole)
    assert len(Embeddings.open(folder)) == ROWS
    for facts in ({"passage_words": 60}, {"dimension": 7}):
        change_manifest(folder, **facts)
        check_refused("part-000000.*' does not fit .* vectors of [67] float32, float16, int8, and")


@pytest.mark.parametrize("scale", [None, [1, 2]])
def test_int8_without_a_usable_scale_is_refused(tmp_path, ids, vectors, scale):
    folder = write_folder(tmp_path / "e", ids, vectors.astype(np.int8), scale=scale)
    with pytest.raises(UserError, match="has no `scale` of 1 or 6 numbers: embed again"):
        Embeddings.open(folder)


def test_a_part_that_breaks_off_or_lacks_an_id_is_refused_while_it_is_read(tmp_path, ids, vectors):
    folder = write_folder(tmp_path / "e", ids, vectors)
    part = folder / "data" / "part-000001.parquet"
    content = part.read_bytes()
    part.write_bytes(content[:4] + bytes(396) + content[400:])
    with pytest.raises(UserError, match=r"part-000001.*cannot be read"):
        list(Embeddings.open(folder).blocks())
    write_part(part, [*ids[13:25].tolist(), None], vectors[13:26])
    with pytest.raises(UserError, match=r"part-000001.*' has rows without an id"):
        list(Embeddings.open(folder).blocks())


def test_one_row_group_is_held_at_a_time(tmp_path):
    """A part of many row groups takes no more memory than one of them does."""
    wide = np.random.default_rng(0).standard_normal((64 * ROWS, 64)).astype(np.float32)
    many = np.arange(len(wide))
    held = {}
    for rows in (16 * ROWS, 64 * ROWS):
        folder = write_folder(tmp_path / str(rows), many[:rows], wide[:rows], parts=1, group=ROWS)
        before = pa.total_allocated_bytes()
        blocks = Embeddings.open(folder).blocks()
        held[rows] = max(pa.total_allocated_bytes() - before for _ in blocks)
    assert held[64 * ROWS] < 2 * held[16 * ROWS]
