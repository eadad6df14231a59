"""Ids that are text: embedded, searched and indexed; and what embed says of rows that it loses."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.evaluation.passages import cut_passages
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.embedding.embed import read_embeddings
from pipelines.reading import ids
from pipelines.reading.sources import plan

pytestmark = pytest.mark.usefixtures("without_ray")

IDS = ["B07", "a-1", "12", "é/2", "zz"]
TEXTS = ["A man", "Two dogs run", "oil", "penguin on the ice", "A woman is singing a song"]


def write(folder, kind):
    path = folder / f"a.{kind}"
    if "parquet" in kind:
        keys = pa.array(IDS).dictionary_encode() if "dictionary" in kind else IDS
        pq.write_table(pa.table({"key": keys, "text": TEXTS}), path)
        return path
    if kind == "jsonl":
        keys = [int(k) if k.isdecimal() else k for k in IDS]
        lines = [json.dumps({"key": k, "text": t}) for k, t in zip(keys, TEXTS, strict=True)]
    else:
        mark = "\t" if kind == "tsv" else ","
        lines = [mark.join(row) for row in [("key", "text"), *zip(IDS, TEXTS, strict=True)]]
    path.write_text("\n".join(lines) + "\n")
    return path


def embed(path, out, model, *words):
    command = ["embed", model, "--input", str(path), "--id-column", "key", "--precision", "fp32"]
    assert main([*command, "--output", str(out), *words]) == 0
    return read_json(out / "manifest.json")


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
    assert (
        "lost 4 of 6 rows (66.7 %): 4 have no id, or one of another type than the first rows"
        in warning
    )
    lines = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["id"] == "b"


def test_a_text_after_the_rows_that_are_looked_at_has_no_id(tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "SAMPLED_ROWS", 2)
    (tmp_path / "a.csv").write_text("key,text\n1,a\n2,b\nx,c\n")
    assert plan([str(tmp_path)], id_column="key").id_type == "int64"
    monkeypatch.setattr(ids, "SAMPLED_ROWS", 3)
    assert plan([str(tmp_path)], id_column="key").id_type == "string"


def search(capsys, folder, *words):
    """The matches of each query of a search."""
    capsys.readouterr()
    assert main(["search", str(folder), *words, "--json", "--precision", "fp32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line)["matches"] for line in lines if line[0] == "{"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_search_finds_them_with_their_texts(tmp_path, bert_folder, capsys, kind):
    """In all of the input, and in a part of it whose ids are whole numbers."""
    path, out = write(tmp_path, kind), tmp_path / "out"
    embed(path, out, bert_folder)
    found = search(capsys, out, *TEXTS, "--top", "2", "--text", str(path))
    assert [(rows[0]["id"], rows[0]["text"]) for rows in found] == [*zip(IDS, TEXTS, strict=True)]
    assert all(rows[0]["score"] > 0.9999 for rows in found)
    (tmp_path / "b.csv").write_text("key,text\n12,oil\n")
    (rows,) = search(capsys, out, "oil", "--top", "1", "--text", str(tmp_path / "b.csv"))
    assert (rows[0]["id"], rows[0]["text"]) == ("12", "oil")
    assert main(["search", str(out), TEXTS[3], "--top", "1"]) == 0
    assert "é/2" in capsys.readouterr().out


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
    for more in ([], ["--encoding", "latin1"]):  # without it, that of embed
        (rows,) = search(capsys, tmp_path / "out", "café au lait", "--text", str(path), *more)
        assert rows[0]["text"] == "café au lait"


def test_texts_other_than_the_embedded_ones_are_not_shown(tmp_path, bert_folder, capsys):
    """As if they were: a line that was inserted moves all row numbers."""
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_text("\n".join(TEXTS))
    command = ["embed", bert_folder, "--input", str(path), "--precision", "fp32"]
    assert main([*command, "--output", str(out)]) == 0
    path.write_text("\n".join([*TEXTS[:2], "A new line", *TEXTS[2:]]))
    capsys.readouterr()
    assert main(["search", str(out), "oil", "--text", str(path), "--json"]) == 0
    printed = capsys.readouterr()
    found = {match["id"]: match["text"] for match in json.loads(printed.out)["matches"]}
    assert found == {0: TEXTS[0], 1: TEXTS[1], 2: None, 3: None, 4: None}
    assert "3 of 5 texts found in the input that --text names are not those" in printed.err
    assert main(["search", str(out), "oil", "--text", str(path), "--keywords"]) == 2
    assert "so its keywords are not theirs" in capsys.readouterr().err
    shutil.rmtree(out / "digests")
    (rows,) = search(capsys, out, "oil", "--text", str(path))
    assert {row["id"]: row["text"] for row in rows}[2] == "A new line"


def test_rows_that_share_an_id_are_shown_with_their_own_texts(tmp_path, bert_folder, capsys):
    """But not by an index, which does not tell them apart; and --text has no keywords for them."""
    path, out = tmp_path / "a.csv", tmp_path / "out"
    keys = ["1", "1", "2", "3", "3"]
    lines = [",".join(row) for row in [("key", "text"), *zip(keys, TEXTS, strict=True)]]
    path.write_text("\n".join(lines))
    embed(path, out, bert_folder, "--keep", "text")
    assert main(["index", str(out), "--output", str(tmp_path / "index")]) == 0
    (rows,) = search(capsys, out, "oil", "--text", str(path))
    assert {(str(row["id"]), row["text"]) for row in rows} == {*zip(keys, TEXTS, strict=True)}
    (rows,) = search(capsys, tmp_path / "index", "oil", "--text", str(path))
    assert {row["id"]: row["text"] for row in rows} == {1: None, 2: "oil", 3: None}
    out.rename(tmp_path / "moved")
    assert search(capsys, tmp_path / "index", "oil", "--text", str(path)) == [rows]
    (tmp_path / "moved").rename(out)
    (by_column,) = search(capsys, out, TEXTS[1], "--keywords")
    assert by_column[0]["text"] == TEXTS[1]
    assert main(["search", str(out), "oil", "--keywords", "--text", str(path)]) == 2
    message = "have the id 1 2 times: --keywords finds the texts in --text by their ids, so embed"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--limit", "5"), ("--on-long", "error")])
def test_keywords_are_those_of_the_rows_that_were_embedded(tmp_path, bert_folder, capsys, words):
    """The row with most of the query's words is not one of them."""
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    rows = [{"key": n, "text": text} for n, text in enumerate([*TEXTS, "oil man " * 300])]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert embed(path, out, bert_folder, "--keep", "text", *words)["rows"] == 5
    query = "a man without oil"
    found = search(capsys, out, query, "--keywords", "--text", str(path))
    assert found == search(capsys, out, query, "--keywords")


def test_keywords_of_a_row_that_was_skipped_are_not_those_of_its_id(tmp_path, bert_folder, capsys):
    path, out = tmp_path / "a.csv", tmp_path / "out"
    path.write_text(
        f"key,text\n1,{'oil man ' * 300}\n1,Two dogs run\n2,oil\n3,{'oil ' * 300}\n3,\n"
    )
    assert embed(path, out, bert_folder, "--on-long", "error")["rows"] == 2
    assert main(["search", str(out), "oil", "--keywords", "--text", str(path)]) == 2
    message = "the rows that --text names have the id 1 2 times: --keywords finds the texts in"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["--keywords"]])
def test_an_input_without_texts_in_the_column_is_refused(tmp_path, bert_folder, capsys, words):
    path, out = write(tmp_path, "jsonl"), tmp_path / "out"
    path.write_text(path.read_text().replace('"text"', '"nope": null, "text"'))
    embed(path, out, bert_folder)
    command = ["search", str(out), "oil", "--text", str(path), "--text-column", "nope", *words]
    assert main(command) == 2
    message = (
        "none of the 5 rows read from the input that --text names has a text in the column 'nope'"
    )
    assert f"{message} and an id in 'key': name the input and" in capsys.readouterr().err


@pytest.mark.parametrize("kept", ["body", "title,body"])
def test_passages_are_cut_from_the_text_that_was_embedded(tmp_path, bert_folder, capsys, kept):
    """Not from a column that is a part of it; `embed` names the search that shows its texts."""
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    row = {"title": "A man", "body": "two dogs run  on the ice while a woman is singing a song"}
    path.write_text(json.dumps(row))
    command = ["embed", bert_folder, "--input", str(path), "--passages", "4", "--keep", kept]
    for column in ("title,body", "body"):
        assert main([*command, "--text-column", column, "--output", str(out)]) == 0
        assert json.loads((out / "manifest.json").read_text())["text_column"] == column
        (words,) = re.findall("cotbert (search .*)", capsys.readouterr().out)
        assert main([*shlex.split(words), "--json"]) == 0
        printed = capsys.readouterr()
        ((match,),) = [json.loads(line)["matches"] for line in printed.out.splitlines()]
        whole = "A man. " * (column != "body") + " ".join(row["body"].split())
        assert match["passage"] in cut_passages(whole, 4)
        if column != "body":
            assert main(["search", str(out), "oil", "--text-column", "body"]) == 0
            assert "1 of the texts found, of the column 'body'" in capsys.readouterr().err
        shutil.rmtree(out)
