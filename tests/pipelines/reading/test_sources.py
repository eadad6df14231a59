"""Finding and cutting up input: what is refused, and that shards cover every line once."""

from __future__ import annotations

import csv
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_inputs import parquet, write_rows

from cotbert_core.errors import UserError
from pipelines.reading.columns import TRIPLES
from pipelines.reading.read_plan import FILE_BITS
from pipelines.reading.readers import read
from pipelines.reading.sources import all_have_integers, are_triples, plan

# Kind of input: the files of a folder, the input below it, what the sentence says.
REFUSED = {
    "nothing": ({}, "none.txt", r"none\.txt' does not exist or matches no file of a known kind"),
    "a glob without a match": ({"a.txt": "x"}, "*.csv", r"\*\.csv' does not exist or matches no f"),
    "an unknown ending": ({"a.pdf": "x"}, "a.pdf", r"'\.pdf': give one of \.txt, .*\.parquet.*; "
                                                   r"docs/settings\.md says how to convert others"),
    "Parquet compressed again": ({"a.parquet.gz": "x"}, "a.parquet.gz",
                                 r"ends in '\.parquet\.gz': give one of \.txt, .*\.zst"),
    "a name without an ending": ({"notes": "x"}, "notes", "notes' has no ending: give one of"),
    "JSON": ({"a.json": "{}"}, "a.json", r"rename text to \.txt and lines of JSON to"),
    "an empty folder": ({}, "", "holds no file of a known kind"),
    "a folder of other files": ({"a.odt": "x", "b.odt": "x", "c": "x", ".d": "x"}, "",
                                r"holds no file of a known kind: .*; those found are 2 \.odt, 1 "
                                r"without an ending: docs/settings\.md says how to convert others"),
    "a csv whose first line never ends": ({"a.csv": '"text\n' + "x\n" * 100_000}, "",
                                          r"first line of .* names no columns"),
    "a csv with another only column": ({"a.csv": "title\nTwo dogs; one man\n"}, "",
                                       "has no column 'text': it has title"),
}  # fmt: skip


def make_files(home, files):
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("kind", REFUSED)
def test_input_without_text_is_refused(tmp_path, kind):
    files, item, message = REFUSED[kind]
    make_files(tmp_path, files)
    csv.field_size_limit(131_072)  # Python's own, which readers raise in the workers
    with pytest.raises(UserError, match=message):
        plan([str(tmp_path / item)])


def test_an_empty_input_is_not_the_current_folder(tmp_path, monkeypatch):
    make_files(tmp_path, {"a.txt": "x"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"input is an empty text: give a path"):
        plan(["a.txt", ""])


def test_a_string_is_no_list_of_inputs(tmp_path):
    """A loop over its characters would read the folder `/`."""
    with pytest.raises(UserError, match=r"inputs is one string, '/.*a\.txt': put it in a list"):
        plan(str(tmp_path / "a.txt"))


def test_what_is_no_file_is_refused_by_name_and_counted_in_a_folder(tmp_path):
    (tmp_path / "link.txt").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe.txt")
    make_files(tmp_path, {"a.txt": "x", "folder.txt/a.txt": "x"})
    (tmp_path / "up").symlink_to(tmp_path)
    found = plan([str(tmp_path)])
    assert found.files == [str(tmp_path / name) for name in ("a.txt", "folder.txt/a.txt")]
    assert found.ignored == 3
    make_files(tmp_path, {os.fsdecode(b"caf\xe9.txt"): "x"})
    (tmp_path / "stdin").symlink_to(tmp_path / "pipe.txt")
    for name, message in {
        "link.txt": r"link\.txt' is a link to '.*gone', which is not there",
        "pipe.txt": r"pipe\.txt' is a pipe or a device: give a file",
        "stdin": r"stdin' is a pipe or a device: give a file",
        "/dev/null": "'/dev/null' is a pipe or a device: give a file",
        os.fsdecode(b"caf\xe9.txt"): "has a name that is not UTF-8: rename it",
        "": "has a name that is not UTF-8: rename it",
    }.items():
        with pytest.raises(UserError, match=message):
            plan([str(tmp_path / name)])
    assert plan([str(tmp_path / "folder.txt")]).files == found.files[1:]


def test_a_question_mark_in_the_name_of_a_file_is_part_of_it(tmp_path):
    """wget saves pages under such names; only addresses of buckets have options there."""
    make_files(tmp_path, {"page?id=1.txt": "x"})
    path = str(tmp_path / "page?id=1.txt")
    assert plan([path]).files == plan([str(tmp_path)]).files == [path]


def test_hidden_files_are_not_read_unless_they_are_named(tmp_path):
    names = ["a.txt", "._a.txt", ".checkpoints/a-checkpoint.txt", "deep/.b.txt", "deep/b.txt"]
    make_files(tmp_path, dict.fromkeys(names, "x"))
    expected = [str(tmp_path / name) for name in ("a.txt", "deep/b.txt")]
    for item in ("{}", "{}/**/*.txt", "file://{}", "file://{}/**/*.txt"):
        prefix = "file://" if "file" in item else ""
        assert plan([item.format(tmp_path)]).files == [prefix + name for name in expected]
    assert plan([str(tmp_path)]).ignored == 3
    for item in ("._a.txt", ".checkpoints", "deep/.*.txt"):
        assert len(plan([str(tmp_path / item)]).files) == 1


def test_the_files_of_an_unfinished_job_are_no_input_unless_they_are_named(tmp_path):
    work = "out.partial/0123456789abcdef"
    names = [f"{work}/output/data/a.txt", f"{work}/scratch/a.txt", "out.partial/record.json"]
    names.append(f"{work}.deleted/output/a.txt")
    own, artifact = ["a.txt", "b.partial/a.txt"], "mlartifacts/1/ab/artifacts/model/README.md"
    make_files(tmp_path, dict.fromkeys([*names, "out.lock", "mlflow.db", artifact, *own], "x"))
    for item in ("{}", "{}/**/*", "file://{}", "file://{}/**/*"):
        prefix = "file://" if "file" in item else ""
        found = plan([item.format(tmp_path)])
        assert found.files == [f"{prefix}{tmp_path / name}" for name in own]
        assert found.ignored == 0
    assert len(plan([str(tmp_path / "out.partial")]).files) == 3


def test_a_folder_of_which_a_part_is_not_read_gets_a_note(tmp_path, capsys):
    make_files(tmp_path, dict.fromkeys(["a.txt", "b.txt", ".e", ".f"], "x"))
    assert plan([str(tmp_path)]).ignored == 2
    assert capsys.readouterr().err == ""
    make_files(tmp_path, dict.fromkeys(["c.html", "d.html", "c.pdf", "d.tar.gz", "e.json"], "x"))
    assert plan([str(tmp_path)]).ignored == 7
    assert f"note: 5 of 7 files in '{tmp_path}' are of kinds that are not read (2 .html, " in (
        said := capsys.readouterr().err
    )
    assert "1 .pdf" in said
    names = ["manifest.json", "result.json", "data/part-000000.txt"]
    make_files(tmp_path, {f"corpus/{name}": "x" for name in names})
    plan([str(tmp_path / "corpus")])
    assert "most files" not in capsys.readouterr().err, "output of cotbert"


OUTPUTS = {
    "a corpus": ["manifest.json", "data/part-000000.txt", "b.txt"],
    "a training": ["settings.json", "metrics.jsonl", "model/vocab.txt"],
    "a training that has ended": ["settings.json", "result.json", "model/vocab.txt"],
    "a model": ["tokenizer_config.json", "README.md", "1_Pooling/a.txt"],
    "a tokenizer": ["tokenizer_config.json", "vocab.txt"],
    "an adaptation": ["settings.json", "corpus/manifest.json", "corpus/data/part-000000.txt"],
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_output_of_a_job_is_no_input_unless_it_is_named(tmp_path, capsys, kind):
    own = ["a.txt", "data/part-000000.txt", "mine/corpus/a.txt", "mine/settings.json"]
    names = [f"out/{name}" for name in OUTPUTS[kind]]
    make_files(tmp_path, dict.fromkeys([*own, *names, "manifest.json"], "x"))
    for prefix in ("", "file://"):
        item = f"{prefix}{tmp_path}"
        found = plan([item])
        assert found.files == [f"{item}/{name}" for name in own[:3]]
        assert found.ignored == 2
        assert capsys.readouterr().err == (
            f"note: folders in '{item}' that hold output of cotbert or a model are not read (1, "
            f"the first '{item}/out'): name them to read them\n"
        )
    make_files(tmp_path, {"out/metrics.jsonl": '{"text": "x"}'})
    for item in (f"{tmp_path}/out", f"{tmp_path}/out/*", f"{tmp_path}/out/metrics.jsonl"):
        assert f"{tmp_path}/out/metrics.jsonl" in plan([item]).files


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    ("text", "paired_columns", "message"),
    [
        ("t", ["no", "n"], "no column 'no': it has t, a, n; name one with --augmented-column$"),
        ("t", ["a", "no"], "no column 'no': it has t, a, n; name one with --negative-column$"),
        ("no", ["a"], "no column 'no': it has t, a, n; name one with --text-column$"),
        ("t", [], "no column 'id': it has t, a, n; name one with --id-column of `cotbert embed`$"),
        ("sent0", TRIPLES[1:], "no column 'sent0': it has t, a, n; name them with --text-column, "
         "--augmented-column, --negative-column in place of --triples$"),
    ],
)  # fmt: skip
def test_a_missing_column_is_reported_with_its_option(
    tmp_path, kind, text, paired_columns, message
):
    path = write_rows(tmp_path / f"a.{kind}", [("x", "y", "z")], ("t", "a", "n"))
    with pytest.raises(UserError, match=rf"a\.{kind}' has {message}"):
        plan([path], text, None if paired_columns else "id", paired_columns=paired_columns)


def test_a_missing_column_of_documents_beside_triples_is_reported_with_its_option(tmp_path):
    path = write_rows(tmp_path / "a.csv", [("x", "y", "z")], TRIPLES)
    with pytest.raises(UserError, match=r"has no column 'b': .*; name one with --documents column"):
        plan([path], TRIPLES[0], paired_columns=TRIPLES[1:], documents="column:b")


IDS = "column 'id' is of type .*: ids must be whole numbers or"


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"id": [b"1"]}, {"id_column": "id"}, IDS),
        ({"id": [1.0]}, {"id_column": "id"}, IDS),
        ({"id": [True]}, {"id_column": "id"}, IDS),
        ({"a": [1]}, {"paired_columns": ["a"]}, "column 'a' is of type int64: it must be text"),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path, columns, options, message):
    make_files(tmp_path, {"a.parquet": parquet(text=["a"], **columns)})
    with pytest.raises(UserError, match=message):
        plan([str(tmp_path)], **options)


def test_input_without_columns_has_no_paired_texts(tmp_path):
    make_files(tmp_path, {"a.txt": "one\n"})
    for item in (str(tmp_path), "docstrings:yaml"):
        with pytest.raises(UserError, match="so no 'sent1' for --augmented-column: give csv"):
            plan([item], "sent0", paired_columns=["sent1"])


def test_files_are_sorted_however_often_and_in_whatever_order_they_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["A.TXT", "a[1].txt", "b.txt", "deep/a.txt", "deep/deeper/c.jsonl"]
    make_files(tmp_path, dict.fromkeys([*names, "deep/README", "x.pdf"], "{}\n"))
    first = plan([str(tmp_path)])
    for inputs in (
        ["A.TXT", "./b.txt", "."],
        ["*.txt", "deep", str(tmp_path), "b.txt"],
        [".", f"file://{tmp_path}", "deep/../b.txt"],
    ):
        assert plan(inputs) == first
    assert first.files == [str(tmp_path / name) for name in names]
    assert first.ignored == 2, "a file of unknown kind is counted once"
    assert [s.first_row for s in first.shards] == [n << FILE_BITS for n in range(5)]
    # A name with brackets is a file before it is a glob.
    assert plan(["a[1].txt"]).files == first.files[1:2]


def test_the_path_of_a_document_leads_to_its_file(tmp_path, monkeypatch):
    """`..` after a link to a folder leads to where that folder is."""
    make_files(tmp_path, dict.fromkeys(["a.txt", "deep/a.txt", "deep/deeper/b.txt"], "x\n"))
    (tmp_path / "link").symlink_to("deep/deeper")
    monkeypatch.chdir(tmp_path)
    made = plan(["a.txt", "link/../a.txt", "deep/../link/b.txt"], documents="file")
    assert [*made.document_names.values()] == ["link/../a.txt", "link/b.txt", "a.txt"]


@pytest.mark.parametrize("name", ["data[1]", "data*", "da?a1", "[*]", ".data[1]"])
def test_the_name_of_the_current_folder_is_no_pattern(tmp_path, monkeypatch, name):
    make_files(tmp_path, dict.fromkeys([f"{name}/a.txt", f"{name}/.b.txt", "data1/a.txt"], "x"))
    monkeypatch.chdir(tmp_path / name)
    for item in ("*.txt", "**/*.txt", "."):
        assert plan([item]).files == [str(tmp_path / name / "a.txt")]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"a.csv": TRIPLES}, True),
        ({"a.csv": TRIPLES, "b.tsv": (*TRIPLES, "id")}, True),
        ({"a.csv": (*TRIPLES, "text")}, False),
        ({"a.csv": TRIPLES[:2]}, False),
        ({"a.csv": TRIPLES, "b.csv": ("text",)}, False),
        ({"a.csv": TRIPLES, "b.txt": ("text",)}, False),
    ],
)
def test_triples_are_recognised_by_the_header(tmp_path, names, expected):
    for name, columns in names.items():
        write_rows(tmp_path / name, [columns], columns)
    assert are_triples([str(tmp_path)]) is expected
    assert not are_triples([str(tmp_path), "docstrings:yaml"])
    assert not are_triples([str(tmp_path)], "utf-16"), "which the files contradict, as plan says"


LINES = [b"one", b"", b"a line that is longer than most sizes", b"  ", b"\xc3\xa9t\xc3\xa9", b"z"]
FILES = {
    "plain": b"\n".join(LINES) + b"\n",
    "no line break at the end": b"\n".join(LINES),
    "CRLF": b"\r\n".join(LINES) + b"\r\n",
    "only line breaks": b"\n\n\n",
    "one line": b"alone",
    "byte order mark": b"\xef\xbb\xbf" + b"\n".join(LINES),
}


@pytest.mark.parametrize("name", FILES)
def test_shards_cover_every_line_once_with_its_row_number(tmp_path, name):
    content = FILES[name]
    make_files(tmp_path, {"a.txt": content})
    lines = content.decode("utf-8-sig").removesuffix("\n").split("\n")
    expected = [(n, " ".join(t.split())) for n, t in enumerate(lines) if t.split()]
    for size in (1, 2, 3, 5, 16, 40, 1 << 20):
        cut = plan([str(tmp_path)], shard_bytes=size)
        assert [s.start for s in cut.shards[1:]] == [s.stop for s in cut.shards[:-1]], size
        assert (cut.shards[0].start, cut.shards[-1].stop) == (0, len(content)), size
        pieces = [piece for shard in cut.shards for piece in read(shard, cut)]
        assert sum(piece.read for piece in pieces) == len(lines), size
        rows = [row for piece in pieces for row in zip(piece.ids, piece.texts, strict=True)]
        assert rows == expected, size


def test_row_groups_are_shards_numbered_through_and_an_empty_file_has_none(tmp_path):
    make_files(tmp_path, dict.fromkeys(("a.txt", "b.jsonl"), ""))
    pq.write_table(pa.table({"text": list("abcdefg")}), tmp_path / "c.parquet", row_group_size=3)
    shards, first = plan([str(tmp_path)]).shards, 2 << FILE_BITS
    places = [(s.start, s.stop, s.first_row) for s in shards]
    assert places == [(0, 1, first), (1, 2, first + 3), (2, 3, first + 6)]


@pytest.mark.parametrize("part", ["data/part-000000.parquet", "data/part-000000-000000.parquet"])
def test_a_corpus_keeps_its_ids_whatever_files_are_beside_its_parts(tmp_path, part):
    names = ["skipped.jsonl", "untracked.jsonl", "untracked_refused.jsonl"]
    make_files(
        tmp_path, {part: parquet(text=["a"], id=[7]), **dict.fromkeys(names, '{"text": "x"}')}
    )
    found = plan([str(tmp_path)])
    assert (all_have_integers(found), found.ignored) == (True, 3)
    (tmp_path / part).unlink()
    assert len(plan([str(tmp_path)]).files) == 3


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.parquet": {"id": [1]}}, True),
        ({"a.parquet": {"id": [1]}, "b.parquet": {"id": ["x"]}}, False),
        ({"a.parquet": {"id": [1]}, "b.parquet": {}}, False),
        ({"a.parquet": {"id": pa.array([1], pa.uint64())}}, False),
        ({"a.parquet": {"id": [1]}, "empty.txt": None}, False),
        ({"empty.txt": None}, False),
    ],
)
def test_ids_are_taken_from_parquet_alone(tmp_path, files, expected):
    """An empty text file has no shard, so the shards alone do not tell."""
    for name, columns in files.items():
        make_files(tmp_path, {name: "" if columns is None else parquet(text=["a"], **columns)})
    assert all_have_integers(plan([str(tmp_path)])) is expected


@pytest.mark.parametrize("columns", ["text", "body,titel", "meta.lang"])
def test_json_without_a_text_column_is_refused_with_its_columns(tmp_path, columns):
    """A column may be missing in many rows."""
    first = '\n{"title": "a", "meta": {"lang": "en"}}\n{broken\n'
    make_files(tmp_path, {"a.jsonl": first + '{"title": "a"}\n' * 900 + '{"body": "b"}\n'})
    plan([str(tmp_path)], text_column="title,body")
    message = (
        f"no column '{columns.split(',')[-1]}': it has body, meta, title; name one with --text-"
    )
    with pytest.raises(UserError, match=message):
        plan([str(tmp_path)], text_column=columns)


def test_a_kept_key_may_be_missing_in_a_json_file_and_in_first_rows(tmp_path, monkeypatch, capsys):
    make_files(tmp_path, {"a.jsonl": '{"text": "a"}\n' * 3, "b.jsonl": '{"text": "b", "n": 1}\n'})
    plan([str(tmp_path)], keep=("n",))
    with pytest.raises(UserError, match=r"no column 'm': it has n, text; name one with --keep"):
        plan([str(tmp_path)], keep=("m",))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("pipelines.reading.columns.SAMPLED_LINES", 2)
    plan([str(tmp_path)], keep=("m",))
    assert "none of the first 2 rows of each file has the key 'm'" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["tab", r"\t", "\t"])
def test_a_delimiter_may_be_given_by_its_word(tmp_path, given):
    (tmp_path / "a.csv").write_text("id\ttext\n1\tA man runs.\n", encoding="utf-8")
    found = plan([str(tmp_path / "a.csv")], "text", delimiter=given)
    assert [piece.texts for piece in read(found.shards[0], found)] == [["A man runs."]]
