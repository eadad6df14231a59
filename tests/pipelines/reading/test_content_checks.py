"""Files that are not what their names say, and web pages: refused by their first bytes."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.reading.content_checks import has_markup
from pipelines.reading.sources import plan

PLAIN = b"Two dogs run\n" * 50
PAGE = """<!DOCTYPE html>
<html><head><title>Dogs</title><style>p {color: red}</style></head>
<body><p>Two dogs run.</p><p class="x">A man sings.</p></body></html>
"""
REVIEWS = "".join(f"A film of {n} dogs.<br /><br />It ends well.\n" for n in range(9))


def as_parquet():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["one"]}), sink)
    return sink.getvalue().to_pybytes()


def as_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", PLAIN)
    return buffer.getvalue()


# Kind of file: its name, what it holds, what the sentence says.
REFUSED = {
    "gzip named .txt": ("a.txt", gzip.compress(PLAIN),
                        r"is gzip, not text: name it '.*/a\.txt\.gz'"),
    "gzip named .csv": ("a.csv", gzip.compress(PLAIN),
                        r"is gzip, not text: name it '.*/a\.csv\.gz'"),
    "zstandard named .txt": ("a.txt", pa.compress(PLAIN, codec="zstd", asbytes=True),
                             r"is zstandard, not text: name it '.*/a\.txt\.zst'"),
    "text named .gz": ("a.txt.gz", PLAIN, r"is not gzip but text: name it '.*/a\.txt'"),
    "text named .zst": ("a.jsonl.zst", b'{"text": "one"}\n',
                        r"is not zstandard but text: name it '.*/a\.jsonl'"),
    "gzip named .zst": ("a.txt.zst", gzip.compress(PLAIN),
                        r"is not zstandard but gzip: name it '.*/a\.txt\.gz'"),
    "gzip within gzip": ("a.txt.gz", gzip.compress(gzip.compress(PLAIN)),
                         "holds gzip inside its compression: unpack it"),
    "Parquet named .txt": ("a.txt", as_parquet(), r"is Parquet, not text: name it '.*/a\.parquet'"),
    "a zip archive": ("a.txt", as_zip(), "is a zip archive or an office document, not text"),
    "a PDF": ("a.txt", b"%PDF-1.7\n...", "is PDF, not text: unpack it or save it as text first"),
    "semicolons": ("a.csv", b"id;text;score\n1;Two dogs;3,5\n",
                   "is not separated by commas but by semicolons: give --delimiter ';'"),
    "semicolons and commas": ("a.csv", b"id;text;a, b\n1;Two dogs;3,5\n", "but by semicolons"),
    "tabs in a csv": ("a.csv", b"id\ttext\n1\tTwo dogs\n", "not separated by commas but by tabs"),
    "commas in a tsv": ("a.tsv", b"id,text\n1,Two dogs\n", "not separated by tabs but by commas"),
}  # fmt: skip


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize("kind", REFUSED)
def test_the_command_says_what_the_file_is(tmp_path, bert_folder, capsys, kind):
    name, data, expected = REFUSED[kind]
    (tmp_path / name).write_bytes(data)
    words = ["prepare", "--input", str(tmp_path / name), "--encoder", bert_folder]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err.strip()
    assert "\n" not in message
    assert message.startswith(f"cotbert: input '{tmp_path / name}'") or name in message
    with pytest.raises(UserError, match=expected):
        plan([str(tmp_path / name)])
    assert not (tmp_path / "out").exists()


def test_a_csv_whose_only_column_is_another_one_stays_that(tmp_path):
    (tmp_path / "a.csv").write_text("title\nTwo dogs; one man\n")
    with pytest.raises(UserError, match="has no column 'text': it has title"):
        plan([str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "markup"),
    [(PAGE, True), (REVIEWS, True), ("\n\n  <HTML lang=en>\n", True),
     ('a\n"x <p>y</p>"\n<b>z', True),
     ("a < b and c > d\nI <3 you\nList<String>\n", False), (PLAIN.decode(), False),
     ("Use <b> for bold.\n" + "Two dogs run.\n" * 40, False), ("", False)],
)  # fmt: skip
def test_markup_is_noticed_where_many_lines_have_tags(text, markup):
    assert has_markup(text.encode()) == markup


@pytest.mark.usefixtures("without_ray")
def test_prepare_names_the_cleaning_step(tmp_path, bert_folder, capsys):
    (tmp_path / "page.txt").write_text(PAGE)
    (tmp_path / "reviews.txt").write_text(REVIEWS)
    words = ["prepare", "--input", str(tmp_path), "--encoder", bert_folder]
    assert main([*words, "--output", str(tmp_path / "a")]) == 0
    note = (
        f"input '{tmp_path / 'page.txt'}' and 1 more hold HTML tags, which become part of the "
        "sentences: `cotbert prepare --clean markup` removes them"
    )
    assert f"warning: {note}\n" in capsys.readouterr().err
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["warnings"] == [note]
    (tmp_path / "in").mkdir()
    (tmp_path / "page.txt").rename(tmp_path / "in" / "page.txt")
    words = ["prepare", "--input", str(tmp_path / "in"), "--encoder", bert_folder]
    assert main([*words, "--clean", "markup", "--output", str(tmp_path / "b")]) == 0
    assert "HTML" not in capsys.readouterr().err
    assert "warnings" not in json.loads((tmp_path / "b" / "manifest.json").read_text())
