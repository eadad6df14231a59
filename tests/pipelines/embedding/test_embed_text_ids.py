"""Ids that are text: embedded, searched and indexed; and what embed says of rows that it loses."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from pipelines.embed import read_embeddings
from pipelines.reading import ids
from pipelines.reading.sources import plan

pytestmark = pytest.mark.usefixtures("without_ray")

IDS = ["B07", "a-1", "12", "é/2", "zz"]
TEXTS = ["A man", "Two dogs run", "oil", "penguin on the ice", "A woman is singing a song"]


def write(folder, kind):
    rows = list(zip(IDS, TEXTS, strict=True))
    path = folder / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"key": IDS, "text": TEXTS}), path)
    elif kind == "dictionary.parquet":
        column = pa.array(IDS).dictionary_encode()
        pq.write_table(pa.table({"key": column, "text": TEXTS}), path)
    elif kind == "jsonl":
        keys = [int(k) if k.isdecimal() else k for k in IDS]
        rows = [{"key": key, "text": text} for key, text in zip(keys, TEXTS, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "\t" if kind == "tsv" else ","
        path.write_text(
            mark.join(("key", "text")) + "\n" + "".join(f"{k}{mark}{t}\n" for k, t in rows)
        )
    return path


def embed(path, out, model, *words):
    command = ["embed", model, "--input", str(path), "--id-column", "key", "--precision", "fp32"]
    assert main([*command, "--output", str(out), *words]) == 0
    return json.loads((out / "manifest.json").read_text())


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "dictionary.parquet"])
def test_ids_that_are_text_are_kept(tmp_path, bert_folder, capsys, kind):
    manifest = embed(write(tmp_path, kind), tmp_path / "out", bert_folder)
    stderr = capsys.readouterr().err
    assert ("'B07': all ids are written as text" in stderr) == ("parquet" not in kind)
    assert (manifest["id_type"], manifest["rows"], manifest["skipped"]) == ("string", 5, {})
    (part,) = (tmp_path / "out").glob("data/part-*.parquet")
    assert pq.read_schema(part).field("id").type == pa.string()
    found, vectors = read_embeddings(tmp_path / "out")
    assert (found.tolist(), vectors.shape) == (IDS, (5, 32))


def test_whole_numbers_stay_int64(tmp_path, bert_folder):
    (tmp_path / "a.csv").write_text("key,text\n7,A man\n-3,oil\n")
    manifest = embed(tmp_path / "a.csv", tmp_path / "out", bert_folder)
    assert manifest["id_type"] == "int64"
    found, _ = read_embeddings(tmp_path / "out")
    assert (found.dtype, found.tolist()) == (np.int64, [7, -3])


def test_one_file_of_text_ids_makes_all_of_them_text(tmp_path, bert_folder):
    (tmp_path / "b.csv").write_text("key,text\n7,nobody\n")
    pq.write_table(pa.table({"key": [8], "text": ["word"]}), tmp_path / "c.parquet")
    write(tmp_path, "jsonl")
    embed(tmp_path, tmp_path / "out", bert_folder)
    assert read_embeddings(tmp_path / "out")[0].tolist() == [*IDS, "7", "8"]


def test_ids_that_cannot_be_are_listed(tmp_path, bert_folder):
    (tmp_path / "a.jsonl").write_text(
        '{"key": "a", "text": "oil"}\n{"key": "", "text": "x"}\n{"key": null, "text": "x"}\n'
        '{"key": true, "text": "x"}\n{"key": "\\ud83d", "text": "x"}\n{"key": "b", "text": ""}\n'
    )
    manifest = embed(tmp_path / "a.jsonl", tmp_path / "out", bert_folder)
    assert (manifest["rows"], manifest["skipped"]) == (1, {"bad_id": 4, "empty": 1})
    (warning,) = manifest["warnings"][1:]
    assert "lost 4 of 6 rows (66.7 %): 4 have an id of another type than the first rows" in warning
    lines = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["id"] == "b"


def test_a_text_after_the_rows_that_are_looked_at_has_no_id(tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "SAMPLED_ROWS", 2)
    (tmp_path / "a.csv").write_text("key,text\n1,a\n2,b\nx,c\n")
    assert plan([str(tmp_path)], id_column="key").id_type == "int64"
    monkeypatch.setattr(ids, "SAMPLED_ROWS", 3)
    assert plan([str(tmp_path)], id_column="key").id_type == "string"


def test_a_file_without_columns_is_refused_at_once(tmp_path, bert_folder, capsys):
    (tmp_path / "a.txt").write_text("oil\n")
    words = ["embed", bert_folder, "--input", str(tmp_path / "a.txt"), "--id-column", "key"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    assert "a.txt' has no columns and so no 'key'" in capsys.readouterr().err


def matches(capsys):
    return [
        json.loads(line)["matches"]
        for line in capsys.readouterr().out.splitlines()
        if line[0] == "{"
    ]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_search_finds_them_with_their_texts(tmp_path, bert_folder, capsys, kind):
    path = write(tmp_path, kind)
    embed(path, tmp_path / "out", bert_folder)
    capsys.readouterr()
    words = ["search", str(tmp_path / "out"), *TEXTS, "--top", "2", "--json", "--precision", "fp32"]
    assert main([*words, "--text", str(path)]) == 0
    found = matches(capsys)
    assert [rows[0]["id"] for rows in found] == IDS
    assert [rows[0]["text"] for rows in found] == TEXTS
    assert all(rows[0]["score"] > 0.9999 for rows in found)
    assert main(["search", str(tmp_path / "out"), TEXTS[3], "--top", "1"]) == 0
    assert "é/2" in capsys.readouterr().out


def test_part_of_the_input_shows_its_texts(tmp_path, bert_folder, capsys):
    embed(write(tmp_path, "csv"), tmp_path / "out", bert_folder)
    (tmp_path / "b.csv").write_text("key,text\n12,oil\n")
    capsys.readouterr()
    words = ["search", str(tmp_path / "out"), "oil", "--top", "1", "--json"]
    assert main([*words, "--text", str(tmp_path / "b.csv")]) == 0
    assert [(row["id"], row["text"]) for row in matches(capsys)[0]] == [("12", "oil")]


def test_an_index_keeps_them_beside_it(tmp_path, bert_folder, capsys):
    faiss = pytest.importorskip("faiss")
    embed(write(tmp_path, "csv"), tmp_path / "out", bert_folder)
    words = [
        "index",
        str(tmp_path / "out"),
        "--format",
        "faiss",
        "--output",
        str(tmp_path / "index"),
    ]
    assert main(words) == 0
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    assert manifest["ids"] == "ids.parquet"
    table = pq.read_table(tmp_path / "index" / "ids.parquet")
    assert table["id"].to_pylist() == IDS
    vectors = read_embeddings(tmp_path / "out")[1]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.read_index(str(tmp_path / "index" / "index.faiss"))
    numbers = index.search(np.ascontiguousarray(unit, np.float32), 1)[1][:, 0]
    assert [table["id"][int(n)].as_py() for n in numbers] == IDS


def test_a_latin_1_input_is_named_read_and_searched(tmp_path, bert_folder, capsys):
    path = tmp_path / "a.csv"
    path.write_bytes("key,text\n1,café au lait\n2,oil\n".encode("latin-1"))
    manifest = embed(path, tmp_path / "first", bert_folder)
    message = f"input '{path}' lost 1 of 2 rows (50.0 %): 1 are not UTF-8 but read as latin-1"
    assert manifest["warnings"][0].startswith(message)
    assert f"warning: {message}" in capsys.readouterr().err
    manifest = embed(path, tmp_path / "out", bert_folder, "--encoding", "latin-1")
    assert (manifest["rows"], manifest["encoding"]) == (2, "iso8859-1")
    assert "warnings" not in manifest
    capsys.readouterr()
    for more in ([], ["--encoding", "latin1"]):  # without it, that of embed
        words = ["search", str(tmp_path / "out"), "café au lait", "--json", "--top", "1"]
        assert main([*words, "--text", str(path), *more]) == 0
        assert matches(capsys)[0][0]["text"] == "café au lait"
