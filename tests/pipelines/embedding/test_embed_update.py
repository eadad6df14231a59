"""cotbert embed --update: what is taken over, embedded and refused, against embedding all rows."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folders import by_id

from cotbert_core.errors import UserError
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.embed import EmbedOptions, embed
from pipelines.embedding import earlier_rows, worker
from pipelines.reading import pieces
from pipelines.storage.resumable_output import locked_output

pytestmark = pytest.mark.usefixtures("without_ray", "small_blocks")

LONG = " ".join(["A man is playing the guitar"] * 30)
# Row 2 is too long for the model, row 5 says the same as row 4, row 6 has no text.
TEXTS = {
    n: "A man" + " and dogs" * n
    if n not in (2, 5, 6)
    else {2: LONG, 5: "A man" + " and dogs" * 4}.get(n)
    for n in range(20)
}
# Against TEXTS: a row before all others, 3 changed, 4 and 9 gone, two at the end.
CHANGED = {
    -1: "Two dogs run",
    **{n: text for n, text in TEXTS.items() if n not in (4, 9)},
    3: "The oil price",
    40: "A dog sleeps",
    41: LONG + " again",
}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_ROWS", 4)


@pytest.fixture
def encoded(monkeypatch):
    """The texts that were encoded, in the order of their blocks."""
    seen, encode = [], worker.encode_block

    def record(encoder, texts, *more):
        seen.extend(texts)
        return encode(encoder, texts, *more)

    monkeypatch.setattr(worker, "encode_block", record)
    return seen


def write(path, texts, **columns):
    pq.write_table(pa.table({"id": [*texts], "text": [*texts.values()], **columns}), path)
    return path


def options_for(model, path, **more):
    return EmbedOptions(model, (str(path),), **{"precision": "fp32", **more})


def passages_of(folder):
    """Id -> (P, D) passages of an embeddings folder, int8 turned back."""
    table = pq.read_table(folder / "data")
    scale = np.asarray(manifest(folder).get("scale", 1.0))
    lists = zip(table["id"].to_pylist(), table["passages"].to_pylist(), strict=True)
    return {row: np.array(vectors, float).reshape(-1, 32) * scale for row, vectors in lists}


def counts(result):
    return [result[key] for key in ("taken_over", "new", "changed", "gone")]


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize(
    ("dtype", "on_long"),
    [("float32", "truncate"), ("float16", "error"), ("int8", "split-mean"), ("int8", "error")],
)
def test_an_update_equals_embedding_all_rows(tmp_path, bert_folder, encoded, dtype, on_long):
    options = {"dtype": dtype, "on_long": on_long, "passages": 4}
    before = write(tmp_path / "before.parquet", TEXTS)
    after = write(tmp_path / "after.parquet", CHANGED)
    embed(options_for(bert_folder, before, **options), tmp_path / "old")
    whole = embed(options_for(bert_folder, after, **options), tmp_path / "whole")
    encoded.clear()
    old = tmp_path / "old"
    result = embed(options_for(bert_folder, after, **options, update=old), tmp_path / "new")
    fits = on_long != "error"
    # Texts that are too long have no vector to take over, and are looked at again.
    expected = {CHANGED[n] for n in (-1, 3, 40, 41)} | (set() if fits else {LONG})
    assert set(encoded) == expected
    assert counts(result) == [16 if fits else 15, 3 if fits else 2, 1, 2]
    found, asked = by_id(tmp_path / "new"), by_id(tmp_path / "whole")
    assert [*found] == [*asked]
    made, wanted = manifest(tmp_path / "new"), manifest(tmp_path / "whole")
    close = {"float32": 1e-5, "float16": 2e-3, "int8": 0.05}[dtype]
    most = 127 * np.asarray(made.get("scale", np.inf))
    for row, vector in asked.items():  # new rows may exceed the scale of the old embeddings
        wanted_here = np.clip(vector, -most, most)
        np.testing.assert_allclose(found[row], wanted_here, atol=close, err_msg=str(row))
    passages = (passages_of(tmp_path / name) for name in ("new", "whole"))
    for one, other in zip(*map(dict.values, passages), strict=True):
        np.testing.assert_allclose(one, np.clip(other, -most, most), atol=close)
    assert made.get("scale") == manifest(tmp_path / "old").get("scale")
    assert (made.get("clipped", 0) > 0) == (dtype == "int8")
    taken = by_id(tmp_path / "old")
    for row in (7, 12, 19):
        np.testing.assert_array_equal(found[row], taken[row])
    keys = ("rows", "skipped", "duplicates", "truncated", "split", "passages")
    assert {key: made[key] for key in keys} == {key: wanted[key] for key in keys}
    assert made["update"] == {key: result[key] for key in ("taken_over", "new", "changed", "gone")}
    assert result["rows_of_this_run"] == result["new"] + result["changed"]
    assert result["rows"] == whole["rows"] == made["rows"]
    if not fits:
        lines = [(tmp_path / name / "skipped.jsonl").read_text() for name in ("new", "whole")]
        assert lines[0] == lines[1]


def test_an_unchanged_corpus_is_linked_part_by_part(tmp_path, bert_folder, monkeypatch):
    path = write(tmp_path / "a.parquet", TEXTS)
    embed(options_for(bert_folder, path), tmp_path / "old")
    monkeypatch.setattr(SentenceEncoder, "encode_tokens", None)
    monkeypatch.setattr(earlier_rows.EarlierRows, "vectors", None)
    result = embed(options_for(bert_folder, path, update=tmp_path / "old"), tmp_path / "new")
    assert counts(result) == [19, 0, 0, 0]
    for folder in ("data", "digests"):
        old, new = (sorted((tmp_path / name / folder).iterdir()) for name in ("old", "new"))
        assert [(p.name, p.stat().st_ino) for p in old] == [(p.name, p.stat().st_ino) for p in new]
        assert len(new) == 5
    old, new = (manifest(tmp_path / name) for name in ("old", "new"))
    assert {key: value for key, value in new.items() if key != "update"} == old


def test_parts_are_copied_where_they_cannot_be_linked(tmp_path, bert_folder, monkeypatch):
    path = write(tmp_path / "a.parquet", TEXTS)
    embed(options_for(bert_folder, path), tmp_path / "old")

    def refuse(*_):
        raise OSError("another file system")

    monkeypatch.setattr(earlier_rows.os, "link", refuse)
    embed(options_for(bert_folder, path, update=tmp_path / "old"), tmp_path / "new")
    for part in (tmp_path / "old" / "data").iterdir():
        copy = tmp_path / "new" / "data" / part.name
        assert copy.read_bytes() == part.read_bytes()
        assert copy.stat().st_ino != part.stat().st_ino


def test_rows_that_moved_are_found_by_their_texts(tmp_path, bert_folder, encoded):
    """Row numbers as ids: a line at the beginning moves all the others."""
    lines = [text.replace("\n", " ") for text in TEXTS.values() if text]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(["A new line", *lines]))
    embed(options_for(bert_folder, tmp_path / "a.txt"), tmp_path / "old")
    encoded.clear()
    options = options_for(bert_folder, tmp_path / "b.txt", update=tmp_path / "old")
    assert counts(embed(options, tmp_path / "new")) == [19, 0, 1, 0]
    assert encoded == ["A new line"]
    old, new = by_id(tmp_path / "old"), by_id(tmp_path / "new")
    for row, vector in old.items():
        np.testing.assert_array_equal(new[row + 1], vector)


def test_kept_columns_are_those_of_the_new_input(tmp_path, bert_folder, encoded):
    path = tmp_path / "a.parquet"
    options = options_for(bert_folder, path, keep=("year",))
    write(path, TEXTS, year=[2000] * 20)
    embed(options, tmp_path / "old")
    encoded.clear()
    write(path, TEXTS, year=[*[2000] * 10, *[2001] * 10])
    new = options_for(bert_folder, path, keep=("year",), update=tmp_path / "old")
    assert counts(embed(new, tmp_path / "new")) == [19, 0, 0, 0]
    assert encoded == []
    assert pq.read_table(tmp_path / "new" / "data")["year"].to_pylist() == [2000] * 9 + [2001] * 10


def test_rows_that_are_gone_can_be_kept_again_and_again(tmp_path, bert_folder):
    full, half = write(tmp_path / "a.parquet", TEXTS), {n: TEXTS[n] for n in range(10)}
    less = write(tmp_path / "b.parquet", half)
    embed(options_for(bert_folder, full), tmp_path / "v1")
    for old, new in (("v1", "v2"), ("v2", "v3")):
        options = options_for(bert_folder, less, update=tmp_path / old, keep_gone=True)
        assert counts(embed(options, tmp_path / new)) == [9, 0, 0, 10]
        vectors, first = by_id(tmp_path / new), by_id(tmp_path / "v1")
        assert vectors.keys() == first.keys()
        for row, vector in first.items():
            np.testing.assert_array_equal(vectors[row], vector)
        assert manifest(tmp_path / new)["rows"] == 19
        assert manifest(tmp_path / new)["truncated"] == manifest(tmp_path / "v1")["truncated"]


def test_a_stopped_update_continues(tmp_path, bert_folder, monkeypatch):
    before, after = (
        write(tmp_path / f"{name}.parquet", texts)
        for name, texts in (("before", TEXTS), ("after", CHANGED))
    )
    embed(options_for(bert_folder, before), tmp_path / "old")
    options = options_for(bert_folder, after, update=tmp_path / "old", keep_gone=True)
    undisturbed = embed(options, tmp_path / "quiet")
    record, stops = worker.write_json_atomic, iter(range(100))

    class StoppedError(Exception):
        pass

    def stop(path, value):
        if next(stops) == 3:
            raise StoppedError
        record(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "write_json_atomic", stop)
        with pytest.raises(StoppedError):
            embed(options, tmp_path / "new")
    result = embed(options, tmp_path / "new")
    assert counts(result) == counts(undisturbed)
    quiet, new = by_id(tmp_path / "quiet"), by_id(tmp_path / "new")
    np.testing.assert_array_equal(np.stack([*new.values()]), np.stack([*quiet.values()]))
    assert manifest(tmp_path / "new") == manifest(tmp_path / "quiet")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16"}, "made otherwise: dtype 'float32' there and 'float16' here: give"),
        ({"normalize": True}, "made otherwise: normalize False there and True here"),
        ({"id_column": "other"}, "made otherwise: id_column 'id' there and 'other' here"),
        ({"keep": ("other",)}, r"made otherwise: keep \[\] there and \['other'\] here"),
        ({"precision": "bf16"}, "made otherwise: precision 'fp32' there and 'bf16' here"),
        ({"passages": 4}, "made otherwise: passage_words None there and 4 here"),
        ({"readout": "cls"}, "made otherwise: readout 'mean' there and 'cls' here"),
    ],
)
def test_vectors_of_other_options_are_not_mixed(tmp_path, bert_folder, changes, message):
    path = write(tmp_path / "a.parquet", TEXTS, other=range(20))
    embed(options_for(bert_folder, path), tmp_path / "old")
    kept = sorted((tmp_path / "old").rglob("*"))
    with pytest.raises(UserError, match=message):
        embed(
            options_for(bert_folder, path, update=tmp_path / "old", **changes),
            tmp_path / "new",
        )
    assert sorted((tmp_path / "old").rglob("*")) == kept
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("new")] == []


def test_vectors_of_another_model_are_not_mixed(tmp_path, bert_folder):
    path = write(tmp_path / "a.parquet", TEXTS)
    embed(options_for(bert_folder, path), tmp_path / "old")
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    encoder.save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match=r"made otherwise: .*model_digest '[0-9a-f]+' there and"):
        embed(
            options_for(str(tmp_path / "model"), path, update=tmp_path / "old"),
            tmp_path / "new",
        )


def break_manifest(old):
    text = (old / "manifest.json").read_text()
    (old / "manifest.json").write_text(text[: len(text) // 2])


def remove_digests(old):
    shutil.rmtree(old / "digests")


def cut_digests(old):
    file = min((old / "digests").iterdir())
    file.write_bytes(file.read_bytes()[:100])


def lose_part(old):
    max((old / "data").iterdir()).unlink()


def leave_unfinished(old):
    old.rename(old.with_name("old.partial"))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (break_manifest, "manifest.json' cannot be read as JSON"),
        (remove_digests, "lack '.*digests/part-000000-000000.parquet' .* embed all of the input"),
        (cut_digests, "lack '.*digests/part-000000-000000.parquet' .* embed all of the input"),
        (lose_part, "parts are missing or from another job"),
        (leave_unfinished, "unfinished: give their `cotbert embed` command again first"),
        (shutil.rmtree, "is not a folder: create one with `cotbert embed`"),
    ],
)
def test_damaged_embeddings_are_not_updated(tmp_path, bert_folder, harm, message):
    path = write(tmp_path / "a.parquet", TEXTS)
    embed(options_for(bert_folder, path), tmp_path / "old")
    harm(tmp_path / "old")
    with pytest.raises(UserError, match=message):
        embed(options_for(bert_folder, path, update=tmp_path / "old"), tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


def test_embeddings_that_another_job_writes_are_not_updated(tmp_path, bert_folder):
    path = write(tmp_path / "a.parquet", TEXTS)
    (tmp_path / "old").mkdir()
    with locked_output(tmp_path / "old"), pytest.raises(UserError, match="is being written by"):
        embed(options_for(bert_folder, path, update=tmp_path / "old"), tmp_path / "new")


@pytest.mark.parametrize("of_input", [False, True])
def test_ids_that_are_there_twice_are_refused(tmp_path, bert_folder, of_input):
    once, twice = tmp_path / "once.parquet", tmp_path / "twice.parquet"
    write(once, TEXTS)
    pq.write_table(pa.table({"id": [1, 7, 7], "text": ["A man", "Two dogs", "oil"]}), twice)
    before, after = (once, twice) if of_input else (twice, once)
    embed(options_for(bert_folder, before), tmp_path / "old")
    whose = "rows of the input" if of_input else "embeddings to update, .*,"
    with pytest.raises(UserError, match=f"the {whose} have the id 7 2 times: an update needs ids"):
        embed(options_for(bert_folder, after, update=tmp_path / "old"), tmp_path / "new")


def test_rows_are_kept_of_something():
    with pytest.raises(UserError, match="keep_gone needs update"):
        EmbedOptions("model", ("a.txt",), keep_gone=True)


def test_a_digest_that_agrees_in_its_first_half_is_another(tmp_path, monkeypatch, bert_folder):
    """Every text has the same first eight bytes, so all but one are embedded again, and rightly."""
    path = write(tmp_path / "a.parquet", TEXTS)
    hashed = worker.text_digests
    monkeypatch.setattr(
        worker, "text_digests", lambda texts: [b"12345678" + d[8:] for d in hashed(texts)]
    )
    embed(options_for(bert_folder, path), tmp_path / "old")
    write(path, {**TEXTS, 0: "A new text"})
    result = embed(options_for(bert_folder, path, update=tmp_path / "old"), tmp_path / "new")
    assert (result["rows"], result["gone"]) == (19, 0)
    whole = tmp_path / "whole"
    embed(options_for(bert_folder, path), whole)
    found, asked = by_id(tmp_path / "new"), by_id(whole)
    for row, vector in asked.items():
        np.testing.assert_allclose(found[row], vector, atol=1e-5)
