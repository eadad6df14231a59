"""cotbert embed --update: what is taken over, embedded and refused, against embedding all rows."""

from __future__ import annotations

import re
import shutil
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folders import by_id

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.commands.embed import summary
from pipelines.embedding import earlier_rows, worker
from pipelines.embedding.options import EmbedOptions
from pipelines.embedding.update import check_same, check_types
from pipelines.storage.resumable_output import locked_output

pytestmark = pytest.mark.usefixtures("small_blocks")

LONG = " ".join(["A man is playing the guitar"] * 30)
# Row 2 is too long for the model, row 5 says the same as row 4, row 6 has no text.
TEXTS = {n: "A man" + " and dogs" * n for n in range(20)}
TEXTS |= {2: LONG, 5: TEXTS[4], 6: None}
# Against TEXTS: a row before all others, 3 changed, 4 and 9 gone, two at the end.
CHANGED = {
    -1: "Two dogs run",
    **{n: text for n, text in TEXTS.items() if n not in (4, 9)},
    3: "The oil price",
    40: "A dog sleeps",
    41: LONG + " again",
}


@pytest.fixture
def embedded(tmp_path, job):
    """Embed texts by id, or the earlier ones, into a folder; with update, from another one."""
    file = tmp_path / "texts.parquet"

    def run(output, texts=None, update=None, columns=None, **options):
        if texts is not None:
            table = {"id": [*texts], "text": [*texts.values()], **(columns or {})}
            pq.write_table(pa.table(table), file)
        if update is not None:
            options["update"] = tmp_path / update
        return job(output, file.name, **options)

    return run


@pytest.fixture
def refused(tmp_path, embedded):
    """An update of `old` ends with this error and leaves nothing."""

    def check(message, **options):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UserError, match=message):
            embedded("new", update="old", **options)
        assert sorted(tmp_path.rglob("*")) == before

    return check


def manifest(folder):
    return read_json(folder / "manifest.json")


def passages_of(folder):
    """Id -> (P, D) passages of an embeddings folder, int8 turned back."""
    rows = pq.read_table(folder / "data").to_pylist()
    return {
        row["id"]: np.array(row["passages"], float).reshape(-1, 32) * row.get("scale", 1)
        for row in rows
    }


def counts(result):
    return [result[key] for key in ("taken_over", "new", "changed", "gone")]


@pytest.mark.parametrize(
    ("dtype", "on_long"),
    [("float32", "truncate"), ("float16", "error"), ("int8", "split-mean"), ("int8", "error")],
)
def test_an_update_equals_embedding_all_rows(tmp_path, embedded, encoded, dtype, on_long):
    options = {"dtype": dtype, "on_long": on_long, "passages": 4}
    embedded("old", TEXTS, **options)
    embedded("whole", CHANGED, **options)
    encoded.clear()
    result = embedded("new", update="old", **options)
    old, whole, new = (tmp_path / name for name in ("old", "whole", "new"))
    fits = on_long != "error"
    # Texts that are too long have no vector to take over, and are looked at again.
    assert set(encoded) == {CHANGED[n] for n in (-1, 3, 40, 41)} | (set() if fits else {LONG})
    assert counts(result) == [16 if fits else 15, 3 if fits else 2, 1, 2]
    assert result["rows_of_this_run"] == result["new"] + result["changed"]
    made, wanted = manifest(new), manifest(whole)
    keys = ("rows", "skipped", "duplicates", "truncated", "split", "passages")
    assert {key: made[key] for key in keys} == {key: wanted[key] for key in keys}
    assert made["update"] == {key: result[key] for key in ("taken_over", "new", "changed", "gone")}
    found, asked = by_id(new), by_id(whole)
    assert [*found] == [*asked]
    close = {"float32": 1e-5, "float16": 2e-3, "int8": 0.05}[dtype]
    for row, vector in asked.items():
        np.testing.assert_allclose(found[row], vector, atol=close, err_msg=str(row))
    for one, other in zip(*map(dict.values, map(passages_of, (new, whole))), strict=True):
        np.testing.assert_allclose(one, other, atol=close)
    taken = by_id(old)
    for row in (7, 12, 19):
        np.testing.assert_array_equal(found[row], taken[row])
    if not fits:
        assert (new / "skipped.jsonl").read_text() == (whole / "skipped.jsonl").read_text()


@pytest.mark.parametrize("linked", [True, False])
def test_an_unchanged_corpus_is_linked_part_by_part(tmp_path, embedded, monkeypatch, linked):
    """Or copied, where the file system cannot link."""
    embedded("old", TEXTS)
    monkeypatch.setattr(SentenceEncoder, "encode_tokens", None)
    monkeypatch.setattr(earlier_rows.EarlierRows, "stored", None)
    if not linked:

        def refuse(*_):
            raise OSError("another file system")

        monkeypatch.setattr(earlier_rows.os, "link", refuse)
    assert counts(embedded("new", update="old")) == [19, 0, 0, 0]
    for folder in ("data", "digests"):
        old, new = (sorted((tmp_path / name / folder).iterdir()) for name in ("old", "new"))
        assert len(old) == 5
        for part, taken in zip(old, new, strict=True):
            assert (part.name, part.read_bytes()) == (taken.name, taken.read_bytes())
            assert (part.stat().st_ino == taken.stat().st_ino) is linked
    old, new = (manifest(tmp_path / name) for name in ("old", "new"))
    assert {key: value for key, value in new.items() if key != "update"} == old


def test_rows_that_moved_are_found_by_their_texts(tmp_path, job, encoded):
    """Row numbers as ids: a line at the beginning moves all the others."""
    lines = [text for text in TEXTS.values() if text]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(["A new line", *lines]))
    (tmp_path / "c.txt").write_text("\n".join([lines[2], "", "Another", *lines[4:]]))
    job("old", "a.txt")
    assert counts(job("other", "c.txt", update=tmp_path / "old")) == [16, 1, 0, 3]
    encoded.clear()
    assert counts(job("new", "b.txt", update=tmp_path / "old")) == [19, 1, 0, 0]
    assert encoded == ["A new line"]
    new = by_id(tmp_path / "new")
    for row, vector in by_id(tmp_path / "old").items():
        np.testing.assert_array_equal(new[row + 1], vector)
    with pytest.raises(UserError, match="keep_gone needs ids that stay with their rows"):
        job("kept", "b.txt", update=tmp_path / "old", keep_gone=True)


def test_a_text_of_many_parts_is_taken_from_a_part_that_is_read_anyway(
    tmp_path, embedded, encoded, monkeypatch
):
    """The first row of each block says the same, and a new row moves all of them."""
    texts = {n: "A dog sleeps" if n % 4 == 0 else f"Dog {n}" for n in range(20)}
    embedded("old", texts)
    encoded.clear()
    read, real = [], pq.ParquetFile.read

    def counted(self, **options):
        if "embedding" in (options.get("columns") or ()):
            read.append(self)
        return real(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "read", counted)
    assert counts(embedded("new", {-1: "The oil price", **texts}, "old")) == [20, 1, 0, 0]
    assert encoded == ["The oil price"]
    assert len(read) == 5, "two neighbouring blocks need each part, which is read once"
    old, new = (by_id(tmp_path / name) for name in ("old", "new"))
    for row, vector in old.items():
        np.testing.assert_allclose(new[row], vector, atol=1e-6)


def test_kept_columns_are_those_of_the_new_input(tmp_path, embedded, encoded):
    embedded("old", TEXTS, columns={"year": [2000] * 20}, keep=("year",))
    encoded.clear()
    years = [*[2000] * 10, *[2001] * 10]
    result = embedded("new", TEXTS, "old", columns={"year": years}, keep=("year",))
    assert (counts(result), encoded) == ([19, 0, 0, 0], [])
    assert pq.read_table(tmp_path / "new" / "data")["year"].to_pylist() == years[1:]


def test_rows_that_are_gone_can_be_kept_again_and_again(tmp_path, embedded):
    embedded("v1", TEXTS)
    first, half = by_id(tmp_path / "v1"), {n: TEXTS[n] for n in range(10)}
    for old, new in (("v1", "v2"), ("v2", "v3")):
        result = embedded(new, half, old, keep_gone=True)
        assert counts(result) == [9, 0, 0, 10]
        assert (result["rows_of_this_run"], result["sentences_per_second"]) == (0, 0)
        vectors = by_id(tmp_path / new)
        assert vectors.keys() == first.keys()
        for row, vector in first.items():
            np.testing.assert_array_equal(vectors[row], vector)
        made, before = manifest(tmp_path / new), manifest(tmp_path / "v1")
        assert (made["rows"], made["truncated"]) == (19, before["truncated"])


@pytest.mark.parametrize("lost", [None, LONG])
def test_a_row_that_lost_its_text_is_not_gone(tmp_path, embedded, lost):
    embedded("old", TEXTS, on_long="error")
    changed = {**TEXTS, 7: lost}
    result = embedded("new", changed, "old", keep_gone=True, on_long="error")
    assert (result["gone"], result["skipped"]) == (0, 3)
    assert by_id(tmp_path / "new").keys() == by_id(tmp_path / "old").keys() - {7}


def test_vectors_of_two_number_formats_are_said(tmp_path, embedded):
    embedded("old", TEXTS, precision="auto")
    made = manifest(tmp_path / "old")
    both = {"bf16", "fp32"}
    (other,) = both - {made["precision"]}
    write_json(tmp_path / "old" / "manifest.json", made | {"precision": other})
    embedded("new", CHANGED, "old", precision="auto")
    new = manifest(tmp_path / "new")
    assert {*new["precision"].split(", ")} == both
    assert "some vectors were computed in bf16 and others in fp32" in new["warnings"][-1]


def test_a_stopped_update_continues(tmp_path, embedded, stopped):
    embedded("old", TEXTS)
    undisturbed = embedded("quiet", CHANGED, "old", keep_gone=True)
    with stopped(2):
        embedded("new", update="old", keep_gone=True)
    assert counts(embedded("new", update="old", keep_gone=True)) == counts(undisturbed)
    quiet, new = by_id(tmp_path / "quiet"), by_id(tmp_path / "new")
    np.testing.assert_array_equal(np.stack([*new.values()]), np.stack([*quiet.values()]))
    assert manifest(tmp_path / "new") == manifest(tmp_path / "quiet")


def test_vectors_of_other_options_are_not_mixed(tmp_path, bert_folder, embedded, refused):
    SentenceEncoder.from_pretrained(bert_folder).save_pretrained(tmp_path / "model")
    embedded("old", TEXTS, columns={"other": range(20)})
    for changes, message in (
        ({"dtype": "float16"}, "dtype 'float32' there and 'float16' here: give"),
        ({"normalize": True}, "normalize False there and True here"),
        ({"id_column": "other"}, "id_column 'id' there and 'other' here"),
        ({"keep": ("other",)}, r"keep \[\] there and \['other'\] here"),
        ({"precision": "bf16"}, "precision 'fp32' there and 'bf16' here"),
        ({"passages": 4}, "passage_words None there and 4 here"),
        ({"readout": "cls"}, "readout 'mean' there and 'cls' here"),
        ({"model": tmp_path / "model"}, ".*model_digest '[0-9a-f]+' there and"),
    ):
        refused(f"made otherwise: {message}", **changes)
    shutil.rmtree(tmp_path / "old")
    embedded("old", dtype="int8")
    made = manifest(tmp_path / "old") | {"scale": [0.1] * 32}  # as earlier versions wrote
    write_json(tmp_path / "old" / "manifest.json", made)
    refused(r"made otherwise: scale \[0.1, .* there and 'row' here: give", dtype="int8")


def test_a_kept_column_of_another_type_is_refused(tmp_path, job, embedded, refused):
    years, keep = {"year": range(20)}, {"keep": ("year",)}
    embedded("old", TEXTS, columns=years, **keep)
    for kind in (pa.int32(), pa.string()):
        table = pa.table({"id": [*TEXTS], "text": [*TEXTS.values()], "year": [None] * 20})
        schema = table.schema.set(2, pa.field("year", kind))
        pq.write_table(table.cast(schema), tmp_path / "texts.parquet")
        message = f"column 'year' is int64 in the embeddings to update, .* and {kind} in the input"
        refused(message, **keep)
    (tmp_path / "texts.jsonl").write_text('{"id": 7, "text": "oil", "year": 1999}\n')
    with pytest.raises(UserError, match="and string in the input: give it the type that it had"):
        job("new", "texts.jsonl", id_column="id", update=tmp_path / "old", keep_gone=True, **keep)


def test_a_type_that_parquet_does_not_have_is_no_other_one(tmp_path):
    schema = pa.schema(
        [("day", pa.date64()), ("at", pa.timestamp("s")), ("n", pa.list_(pa.int8()))]
    )
    pq.write_table(schema.empty_table(), tmp_path / "part")
    earlier = SimpleNamespace(schema=pq.read_schema(tmp_path / "part"), path=tmp_path)
    check_types(earlier, schema)
    with pytest.raises(UserError, match=r"column 'n' is list<.*int8> in .* and list<.*int16> in"):
        check_types(earlier, schema.set(2, pa.field("n", pa.list_(pa.int16()))))


def break_manifest(old):
    text = (old / "manifest.json").read_text()
    (old / "manifest.json").write_text(text[: len(text) // 2])


def cut_digests(old):
    file = min((old / "digests").iterdir())
    file.write_bytes(file.read_bytes()[:100])


NO_DIGESTS = "lack '.*digests/part-000000-000000.parquet' .* embed all of the input"
HARMS = (
    (break_manifest, "manifest.json' cannot be read as JSON"),
    (lambda old: shutil.rmtree(old / "digests"), NO_DIGESTS),
    (cut_digests, NO_DIGESTS),
    (lambda old: max((old / "data").iterdir()).unlink(), "parts are missing or from another job"),
    (lambda old: old.rename(f"{old}.partial"), "unfinished: give their `cotbert embed` command"),
    (shutil.rmtree, "is not a folder: create one with `cotbert embed`"),
)


def test_damaged_embeddings_are_not_updated(tmp_path, embedded, refused):
    embedded("whole", TEXTS)
    old = tmp_path / "old"
    for harm, message in HARMS:
        shutil.copytree(tmp_path / "whole", old, dirs_exist_ok=True)
        harm(old)
        refused(message)
        shutil.rmtree(tmp_path / "old.partial", ignore_errors=True)
    shutil.copytree(tmp_path / "whole", old)
    with locked_output(old):
        refused("is being written by")


def test_ids_that_are_there_twice_are_refused(tmp_path, job):
    once, twice = tmp_path / "once.parquet", tmp_path / "twice.parquet"
    pq.write_table(pa.table({"id": [1, 7], "text": ["A man", "oil"]}), once)
    pq.write_table(pa.table({"id": [1, 7, 7], "text": ["A man", "Two dogs", "oil"]}), twice)
    for old, new, whose in (
        (once, twice, "rows of the input"),
        (twice, once, f"embeddings to update, '{re.escape(str(tmp_path / 'twice'))}',"),
    ):
        job(old.stem, old.name)
        message = f"the {whose} have the id 7 2 times: an update needs ids"
        with pytest.raises(UserError, match=message):
            job("new", new.name, update=tmp_path / old.stem)


def test_a_digest_that_agrees_in_its_first_half_is_another(tmp_path, monkeypatch, embedded):
    """Every text has the same first eight bytes, so all but one are embedded again, and rightly."""
    hashed = worker.text_digests
    monkeypatch.setattr(
        worker, "text_digests", lambda texts: [b"12345678" + d[8:] for d in hashed(texts)]
    )
    embedded("old", TEXTS)
    result = embedded("new", {**TEXTS, 0: "A new text"}, "old")
    assert (result["rows"], result["gone"]) == (19, 0)
    embedded("whole")
    found = by_id(tmp_path / "new")
    for row, vector in by_id(tmp_path / "whole").items():
        np.testing.assert_allclose(found[row], vector, atol=1e-5)


def test_embeddings_made_anew_at_a_path_are_read_anew(embedded, tmp_path):
    """In one process, such as a notebook, whose last update read a part of the same name."""
    texts = ["A man", "Two dogs", "The oil price", "A song"]
    for name in ("first", "second"):
        shutil.rmtree(tmp_path / "old", ignore_errors=True)
        embedded("old", dict(enumerate(texts)))
        embedded(name, dict(enumerate(texts[1:])), update="old")
        found, old = by_id(tmp_path / name), by_id(tmp_path / "old")
        for row in range(3):
            np.testing.assert_array_equal(found[row], old[row + 1])
        texts.reverse()


def test_vectors_of_an_int8_graph_are_not_mixed_with_others():
    """Whichever of the two jobs used the graph: only its manifest has the entry computed_in."""
    plain = {"model_digest": "a", "precision": "bf16", "backend": "openvino"}
    graph = {**plain, "precision": "auto", "computed_in": "int8"}
    for before, now, words in (
        (graph, plain, "computed_in 'int8' there and None here"),
        (plain, graph, "computed_in None there and 'int8' here"),
    ):
        earlier = SimpleNamespace(path="v1", manifest={**before, "precision": "bf16"})
        with pytest.raises(UserError, match=words):
            check_same(earlier, now)


def test_embeddings_that_do_not_record_the_full_stop_are_updated():
    before = {"model_digest": "a", "precision": "bf16"}
    now = {**before, "full_stop": True}
    check_same(SimpleNamespace(path="v1", manifest=before), now)
    with pytest.raises(UserError, match="full_stop False there and True here"):
        check_same(SimpleNamespace(path="v1", manifest={**before, "full_stop": False}), now)


@pytest.mark.parametrize(
    ("gone", "keep_gone", "shown"),
    [
        (0, True, "0 gone from the input, 0 skipped."),
        (2, False, "2 gone from the input and dropped, 0 skipped."),
        (2, True, "2 gone from the input and kept, 0 skipped."),
    ],
)
def test_it_is_said_what_became_of_the_rows_that_are_gone(gone, keep_gone, shown):
    result = {"rows": 9, "skipped": 0, "new": 1, "changed": 1, "taken_over": 7, "gone": gone}
    assert summary(result, keep_gone).endswith(f"7 taken over, {shown}")


def test_a_block_of_the_same_texts_under_other_ids_gets_the_new_ids(embedded, tmp_path):
    texts = ["A man", "Two dogs", "The oil price", "A song"]
    embedded("old", dict(zip(range(4), texts, strict=True)))
    embedded("new", dict(zip(range(10, 14), texts, strict=True)), update="old")
    assert [*by_id(tmp_path / "new")] == [10, 11, 12, 13]


def test_rows_of_three_parts_in_a_cycle_keep_their_vectors(embedded, tmp_path):
    texts = [f"A man{' and dogs' * n}" for n in range(12)]
    embedded("old", dict(enumerate(texts)))
    mixed = [texts[place] for place in (4, 8, 0, 5)]  # of the parts 1, 2, 0 and 1
    embedded("new", dict(enumerate(mixed)), update="old")
    embedded("whole", dict(enumerate(mixed)))
    new, whole = by_id(tmp_path / "new"), by_id(tmp_path / "whole")
    for one in whole:
        np.testing.assert_allclose(new[one], whole[one], atol=1e-5)


# The options that `check_same` compares, and those on which no text's vector depends.
COMPARED = (
    *("model", "id_column", "dtype", "normalize", "template", "readout", "precision", "keep"),
    *("truncate_dim", "on_long", "passages", "backend", "clean", "documents"),
)
OF_ROWS_OR_SPEED = (
    *("inputs", "text_column", "workers", "attention", "encoding", "delimiter", "limit"),
    *("wrapped", "update", "keep_gone"),
)


def test_an_option_is_compared_by_an_update_or_changes_no_vector():
    assert {one.name for one in fields(EmbedOptions)} == {*COMPARED, *OF_ROWS_OR_SPEED}
