"""Folders of files: small ones share parts; with --documents file each of them is one text."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_inputs import write_rows

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.embedding import job as embed_job
from pipelines.embedding.embed import read_embeddings
from pipelines.reading import sources
from pipelines.reading.data_folder import part_files
from pipelines.reading.file_shards import join_small_files

MANUAL = {
    "a.md": "# Doors\n\nOpen the door\nslowly.\n",
    "b.txt": "oil\n\nTwo dogs run\n",
    "c/d.txt": "\n  \n",
    "e.txt": "",
    "f.txt": "a café\n".encode("latin-1"),
    "g.txt": "penguin on the ice",
}


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def skipped(folder):
    lines = (folder / "skipped.jsonl").read_text().splitlines()
    return [(row["file"], row["row"], row["reason"]) for row in map(json.loads, lines)]


def failed(capsys, *words):
    assert main(["embed", *map(str, words)]) == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_small_files_share_a_part_and_nothing_else_changes(tmp_path, job, monkeypatch):
    """Rows, ids, skipped rows and warnings are those of a part for each file."""
    texts = {f"{n:02}.txt": f"{n} dogs run\n\n{n} penguins\n" for n in range(40)}
    rows = "".join(json.dumps({"text": f"oil {n}"}) + "\n" for n in range(5)) + "{\n"
    write(tmp_path / "in", texts | {"10.jsonl": rows, "11.txt": "a café\nok\n".encode("latin-1")})
    job("out", "in")
    monkeypatch.setattr(embed_job, "join_small_files", lambda shards, *_: shards)
    job("apart", "in")
    assert len(part_files(tmp_path / "apart")) == 41
    assert len(part_files(tmp_path / "out")) == 3  # a format to a part: txt, jsonl, txt
    (ids, vectors), (wanted, apart) = (read_embeddings(tmp_path / n) for n in ("out", "apart"))
    assert ids.tolist() == wanted.tolist()
    np.testing.assert_allclose(vectors, apart, atol=1e-6)
    assert skipped(tmp_path / "out") == skipped(tmp_path / "apart")
    made, other = (read_json(tmp_path / name / "manifest.json") for name in ("out", "apart"))
    assert made == other
    assert len(made["warnings"]) == 2
    assert f"input '{tmp_path}/in/11.txt' lost 1 of 2 rows (50.0 %)" in made["warnings"][1]


def test_large_files_and_other_formats_stay_apart(tmp_path):
    write(tmp_path, {f"{n}.txt": "a b c d\n" * (1 + 20 * (n == 2)) for n in range(6)})
    write(tmp_path, {f"4{n}.csv": "text\noil\n" for n in range(3)})
    with gzip.open(tmp_path / "6.txt.gz", "wb") as file:
        file.write(b"a\n")
    pq.write_table(pa.table({"text": ["a"] * 4}), tmp_path / "7.parquet", row_group_size=2)
    pq.write_table(pa.table({"text": ["a"] * 4}), tmp_path / "8.parquet")
    shards = sources.plan([str(tmp_path)], shard_bytes=64).shards
    joined = join_small_files(shards, 24, 10)
    parts = [[part.path.rsplit("/")[-1] for part in shard.parts] for shard in joined]
    small = [["3.txt", "4.txt"], ["40.csv", "41.csv"], ["42.csv"], ["5.txt"]]
    others = [["6.txt.gz"], *[["7.parquet"]] * 2, ["8.parquet"]]
    assert parts == [["0.txt", "1.txt"], *[["2.txt"]] * 3, *small, *others]
    assert [part for shard in joined for part in shard.parts] == shards
    assert sum(shard.rows for shard in joined if shard.path.endswith(".txt")) == 26
    assert max(len(shard.parts) for shard in join_small_files(shards, 100, 1)) == 1


def test_each_file_is_a_text_with_its_path(tmp_path, job, encoded, monkeypatch):
    """Empty files and unreadable ones are skipped."""
    write(tmp_path / "in", MANUAL)
    monkeypatch.chdir(tmp_path)
    found = job("out", "in", documents="file")
    ids, vectors = read_embeddings(tmp_path / "out")
    kept = [f"{tmp_path}/in/{name}" for name in ("a.md", "b.txt", "g.txt")]
    assert ids.tolist() == kept
    assert sorted(encoded) == ["# Doors Open the door slowly.", "oil Two dogs run", MANUAL["g.txt"]]
    reasons = [
        (path.removeprefix(f"{tmp_path}/in/"), why) for path, _, why in skipped(tmp_path / "out")
    ]
    assert reasons == [("c/d.txt", "empty"), ("e.txt", "empty"), ("f.txt", "invalid_utf8")]
    manifest = read_json(tmp_path / "out" / "manifest.json")
    assert (manifest["documents"], manifest["id_type"], found["rows"]) == ("file", "string", 3)
    assert "give --encoding latin-1" in manifest["warnings"][0]
    (tmp_path / "one.txt").write_text("oil Two dogs run")
    job("line", "one.txt")
    np.testing.assert_allclose(vectors[1], read_embeddings(tmp_path / "line")[1][0], atol=1e-6)


def test_a_file_without_text_has_one_reason_whatever_row_is_last(tmp_path, job):
    files = {"a.jsonl": '{"text": ""}\n{"text": null}\n', "b.txt": "<br>\n\n", "c.txt": "oil"}
    write(tmp_path / "in", files)
    job("out", "in", documents="file", clean=("markup",))
    assert [why for *_, why in skipped(tmp_path / "out")] == ["empty", "emptied_by_cleaning"]


def test_the_rows_of_a_table_are_one_text_too(tmp_path, job, encoded):
    rows = [("oil",), ("Two dogs run",)]
    for kind in ("csv", "tsv", "jsonl", "parquet"):
        path = tmp_path / "in" / kind / f"a.{kind}"
        path.parent.mkdir(parents=True)
        write_rows(path, rows)
        job(f"out-{kind}", f"in/{kind}", documents="file")
        assert read_embeddings(tmp_path / f"out-{kind}")[0].tolist() == [str(path)]
    assert encoded == ["oil Two dogs run"] * 4


def test_wrapped_lines_are_cleaned_as_texts_of_their_own(tmp_path, job, encoded):
    """As `cotbert adapt --documents file --wrapped` cleaned them."""
    full = "the dogs run over\nthe ice and the man\nis on the ice as\nthey run on.\n"
    write(
        tmp_path / "in", MANUAL | {"h.md": "> a quoted\n> line\n\n* one &amp;lt;\n", "i.txt": full}
    )
    job("out", "in", documents="file", wrapped=True, clean=("markup",), encoding="latin-1")
    assert {"a quoted line one &lt;", "Doors Open the door slowly.", "a café"} < {*encoded}
    job("plain", "in", documents="file", encoding="latin-1")
    assert "warnings" not in read_json(tmp_path / "plain" / "manifest.json"), "about wrapped lines"
    job("rows", "in", encoding="latin-1")
    (warning,) = read_json(tmp_path / "rows" / "manifest.json")["warnings"]
    assert "--wrapped of prepare, adapt and embed joins them" in warning


def test_a_long_file_of_wrapped_lines_is_searched_by_its_row_numbers(tmp_path, job, capsys):
    long = "the penguin on the ice and\nthe man with the guitar\n" * 6_000
    write(tmp_path, {"a.txt": f"{long}\n{long}\noil\nprices\n\nTwo dogs\nrun\n"})
    job("out", "a.txt", wrapped=True)
    words = ["search", str(tmp_path / "out"), "oil prices", "Two dogs run", "--top", "1", "--json"]
    words += ["--text", str(tmp_path / "a.txt"), "--keywords", "--precision", "fp32"]
    assert main(words) == 0
    found = [json.loads(line)["matches"][0] for line in capsys.readouterr().out.splitlines()]
    assert [match["text"] for match in found] == ["oil prices", "Two dogs run"]


def test_files_are_searched_and_updated_by_their_paths(tmp_path, job, encoded, capsys, monkeypatch):
    write(tmp_path / "in", MANUAL)
    monkeypatch.chdir(tmp_path)
    job("old", "in", documents="file", passages=2, encoding="latin-1")
    words = ["search", "old", "penguin on", "--text", f"{tmp_path}/in", "--keywords", "--top", "1"]
    assert main([*words, "--json", "--precision", "fp32"]) == 0
    (match,) = json.loads(capsys.readouterr().out)["matches"]
    assert match["id"] == f"{tmp_path}/in/g.txt"
    assert (match["text"], match["passage"]) == (MANUAL["g.txt"], "penguin on")
    write(tmp_path / "in", {"b.txt": "oil\nThree dogs run\n", "0.txt": "one more"})
    (tmp_path / "in" / "f.txt").unlink()
    encoded.clear()
    given = {"passages": 2, "encoding": "latin-1", "update": tmp_path / "old"}
    found = job("new", "in", documents="file", **given)
    assert sorted(encoded) == ["oil Three dogs run", "one more"]
    assert [found[key] for key in ("taken_over", "new", "changed", "gone")] == [2, 1, 1, 1]
    with pytest.raises(UserError, match=r"made otherwise: .*documents 'file' there and None here"):
        job("rows", "in", **given)


@pytest.mark.usefixtures("without_ray")
def test_the_limit_counts_files_and_paths_are_as_given(
    tmp_path, bert_folder, encoded, capsys, monkeypatch
):
    write(tmp_path / "in", {f"{n}.txt": f"{n} dogs\nrun\n" for n in range(5)})
    monkeypatch.chdir(tmp_path)
    options = ["--documents", "file", "--limit", "2", "--precision", "fp32"]
    words = ["embed", str(bert_folder), "--input", "in", *options, "--output", "out"]
    assert main(words) == 0
    assert encoded == ["0 dogs run", "1 dogs run"]
    assert read_json(tmp_path / "out" / "manifest.json")["files"] == 2
    capsys.readouterr()
    assert main(["search", "out", "dogs", "--text", "in", "--keywords", "--precision", "fp32"]) == 0
    shown = [line.split()[2] for line in capsys.readouterr().out.splitlines()]
    assert (shown[0], {*shown[1:]}) == ("id", {"in/0.txt", "in/1.txt"})


def test_a_file_beyond_a_million_characters_is_skipped(tmp_path, job):
    write(tmp_path / "in", {"a.txt": "a penguin\n" * 100_001, "b.txt": "oil\n"})
    assert job("out", "in", documents="file")["rows"] == 1
    assert skipped(tmp_path / "out") == [(f"{tmp_path}/in/a.txt", 0, "too_long")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--input", "docstrings:json"), "documents is 'file' and the input is docstrings, whose"),
        (
            ("--input", "a.csv", "--keep", "n"),
            "documents is 'file' and keep names a column of rows",
        ),
        (("--input", "a.csv", "--id-column", "n"), "'file' and id_column names a column of rows"),
    ],
)
def test_what_files_cannot_have_is_refused(
    tmp_path, capsys, monkeypatch, bert_folder, words, message
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"a.csv": "text,n\noil,1\n"})
    out = ("--output", "out", "--documents", "file")
    assert message in failed(capsys, bert_folder, *words, *out)
    assert not (tmp_path / "out").exists()
