"""Text that is not UTF-8: named by its encoding, read by --encoding, never lost without a word."""

from __future__ import annotations

import gzip
import json

import pytest
from read_inputs import parquet, prepared, raw_text, read_all, run_prepare

from cotbert_core.errors import UserError
from pipelines.reading import line_reader
from pipelines.reading.encodings import can_be_cut, named_encoding
from pipelines.reading.sources import plan

TEXTS = ["Le café est fermé", "Two dogs run", "Ångström, naïve – “quoted”", "oil"] * 5
PLAIN = [text.replace("–", "-").replace("“", '"').replace("”", '"') for text in TEXTS]


def content(kind, texts):
    if kind == "jsonl":
        return "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in texts)
    if kind == "csv":
        return "n,text\n" + "".join(f'1,"{t.replace(chr(34), chr(34) * 2)}"\n' for t in texts)
    return "\n".join(texts)


@pytest.mark.parametrize("kind", ["txt", "csv", "jsonl", "txt.gz"])
@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig",
                 "UTF8", "cp037"],
)  # fmt: skip
def test_a_named_encoding_gives_the_texts(tmp_path, monkeypatch, kind, encoding):
    texts = PLAIN if encoding in ("latin-1", "cp037") else TEXTS
    data = content(kind.removesuffix(".gz"), texts).encode(encoding)
    (tmp_path / f"a.{kind}").write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 7)  # which cuts characters
    found = read_all(tmp_path, encoding=encoding, shard_bytes=40)
    assert found[:2] == (texts, {})


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_mark_before_a_named_order_is_no_text(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes("\ufeffone\ntwo".encode(encoding))
    for name in (encoding, "utf-16"):
        assert read_all(tmp_path, encoding=name).texts == ["one", "two"]


def test_only_what_keeps_its_line_breaks_is_cut(tmp_path):
    assert [can_be_cut(name) for name in (None, "cp1252", "iso8859-1", "koi8-r")] == [True] * 4
    wide = ("utf-16", "utf-16-le", "utf-32", "shift_jis", "gb18030", "utf-7", "cp037")
    stateful = ("iso2022_jp", "iso2022_kr", "hz")
    assert not any(map(can_be_cut, (*wide, *stateful)))
    (tmp_path / "a.txt").write_bytes("\n".join(PLAIN).encode("latin-1"))
    assert len(plan([str(tmp_path)], encoding="latin-1", shard_bytes=40).shards) > 3


@pytest.mark.parametrize(
    ("data", "encoding", "texts"),
    [
        (b"one\ntw\x81o\n\x93three\x94", "cp1252", ["one", "“three”"]),
        ("one\ntwo".encode("utf-16-le") + b"\n\0\0\xd8a\0\n\0o\0k\0", "utf-16-le",
         ["one", "two", "ok"]),
    ],
)  # fmt: skip
def test_bytes_that_are_invalid_there_are_counted(tmp_path, data, encoding, texts):
    (tmp_path / "a.txt").write_bytes(data)
    assert read_all(tmp_path, encoding=encoding)[:2] == (texts, {"invalid_encoding": 1})


def test_parquet_has_an_encoding_of_its_own(tmp_path):
    content = parquet(text=raw_text([b"one", b"\xff", "café".encode()]))
    (tmp_path / "a.parquet").write_bytes(content)
    (tmp_path / "b.txt").write_bytes("naïf".encode("latin-1"))
    found = read_all(tmp_path, encoding="latin-1")
    assert found[:2] == (["one", "café", "naïf"], {"invalid_utf8": 1})


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        ("one\ntwo".encode("utf-16"), "latin-1", "is UTF-16 and --encoding is iso8859-1: give"),
        ("one\ntwo".encode("utf-16-be"), "utf-16-le", "give --encoding utf-16-be"),
        (b"\xfe\xff" + "one\ntwo".encode("utf-16-be"), "utf-16-le", "give --encoding utf-16"),
        ("one\ntwo".encode("utf-16-be"), "utf-16", "give --encoding utf-16-be"),
        ("one\ntwo".encode("utf-16-le"), "utf-16", "give --encoding utf-16-le"),
        (
            "один\nдва".encode("utf-16-le"),
            "utf-16",
            "no byte order mark .* give --encoding utf",
        ),
        (b"one\ntwo", "utf-16", "is UTF-8 and --encoding is utf-16: leave --encoding out"),
    ],
)
def test_an_encoding_that_the_file_contradicts_is_refused(tmp_path, data, encoding, message):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(UserError, match=message):
        plan([str(tmp_path)], encoding=encoding)


@pytest.mark.parametrize("name", ["latin-15x", "base64", "rot13", "undefined", "idna", "punycode"])
def test_an_unknown_encoding_is_refused(name):
    with pytest.raises(UserError, match=f"encoding is '{name}', which is unknown"):
        named_encoding(name)


@pytest.mark.usefixtures("without_ray")
def test_a_latin_1_file_is_named_and_read(tmp_path, bert_folder, capsys):
    """As it happened: 202 lines of 10,662 were dropped with no hint."""
    path, first = tmp_path / "reviews.txt", tmp_path / "first"
    texts = [f"{n} café" if n % 53 == 1 else f"{n} film" for n in range(1_062)]
    path.write_bytes("\n".join(texts).encode("latin-1"))
    assert run_prepare(first, bert_folder, "--input", path) == 0
    warning = (
        f"input '{path}' lost 21 of 1,062 rows (2.0 %): 21 are not UTF-8 but read as latin-1 "
        "('1 café'): give --encoding latin-1"
    )
    assert f"warning: {warning}\n" in capsys.readouterr().err
    manifest = json.loads((first / "manifest.json").read_text())
    assert (manifest["warnings"], manifest["dropped"]) == ([warning], {"invalid_utf8": 21})
    assert json.loads((first / "result.json").read_text())["warnings"] == 1
    assert "give --encoding latin-1" in (first / "report.html").read_text()

    second = prepared(tmp_path / "second", bert_folder, path, encoding="latin-1")
    assert set(second.texts().values()) == set(texts)
    assert second.manifest["source"]["encoding"] == "iso8859-1"
    assert "warning" not in capsys.readouterr().err

    words = ("--input", path, "--on-invalid", "fail")
    assert run_prepare(tmp_path / "third", bert_folder, *words) == 2
    assert "give --encoding latin-1" in capsys.readouterr().err


@pytest.mark.usefixtures("without_ray")
def test_a_utf8_corpus_says_nothing_of_encodings(tmp_path, bert_folder, capsys):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    plain = prepared(tmp_path / "plain", bert_folder, tmp_path / "a.txt")
    named = prepared(tmp_path / "named", bert_folder, tmp_path / "a.txt", encoding="UTF-8")
    assert "warning" not in capsys.readouterr().err
    assert plain.manifest == named.manifest
    assert not {"encoding", "warnings"} & {*plain.manifest, *plain.manifest["source"]}
