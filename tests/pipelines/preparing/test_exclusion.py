"""Sentences to keep out: how they are read from files, and what counts as the same sentence."""

from __future__ import annotations

import csv
import os
import random
import string
from collections import Counter

import pytest

from cotbert_core.errors import UserError
from pipelines.preparing.exclusion import key, not_excluded, read_exclusion
from pipelines.reading.delimited import MOST_CELL


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Two dogs, running.", "two dogs running"),
        ("It's  what he didn't say", "its what he didnt say!"),
        ("STRASSE", "straße"),
        ("caf\u00e9", "Cafe\u0301"),
        ("\ufb01ne _words_", "fine words"),
        ("12,5 percent", "12.5 PERCENT"),
        ("\u0130stanbul \u2764\ufe0f", "istanbul"),
        ("\u0643\u064e\u062a\u064e\u0628\u064e", "\u0643\u062a\u0628"),  # Arabic vowels
    ],
)
def test_the_same_letters_are_the_same_sentence(one, other):
    assert key(one) == key(other) is not None


def test_other_letters_or_digits_are_another_sentence():
    texts = ["two dogs run", "two dogs ran", "2 dogs run", "dogs two run", "two dogs", "漢字", "漢"]
    texts += ["वह जाता है", "वह जाती है", "वह जता है"]
    assert len({key(text) for text in texts}) == len(texts)
    assert [key(text) for text in ("", " \t", "?!", "_ _")] == [None] * 4


SENTENCES = [
    "A man, is playing the guitar.",
    'She said "yes" twice',
    "Two dogs run",
    "Oil prices rose by 3 percent",
]


HEADER = ["id", "genre", "score", "s1", "s2"]
ROWS = [["1", "main-news", "4.5", *SENTENCES[:2]], ["2", "MSRvid", "0", *SENTENCES[2:]]]
# Files by the kind of input that they are. SentEval's have quotes that close nothing.
FILES = {
    "lines": {"a.txt": "\ufeff" + "\n".join([*SENTENCES, "", "  "])},
    "csv": {"a.csv": ","},
    "csv with semicolons": {"a.csv": ";"},
    "csv with another delimiter": {"a.csv": "^"},
    "tsv": {"a.tsv": "\t"},
    "csv with tabs": {"a.csv": "\t"},
    "unquoted csv": {"a.csv": "\n".join(SENTENCES)},
    "tabs, a quote": {"STS.input.MSRvid.txt": '{}\t"{}\n{}\t{}\n'.format(*SENTENCES)},
    "folder": {
        "STS.gs.txt": "4.5\n0\n\n",
        "correlation.pl": "this is no sentence",
        "STS.input.txt": "\t".join(SENTENCES),
        ".hidden.txt": "this is no sentence",
    },
    "folder with a file without a suffix": {"sentiment-test": "\t".join(SENTENCES)},
}


@pytest.mark.parametrize("kind", FILES)
def test_the_sentences_of_every_kind_of_file(tmp_path, kind):
    for name, content in FILES[kind].items():
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
            if len(content) == 1:  # a delimiter
                csv.writer(file, delimiter=content).writerows([HEADER, *ROWS])
            else:
                file.write(content)
    keys = read_exclusion([str(tmp_path if kind.startswith("folder") else tmp_path / name)], "^")
    assert keys >= {key(text) for text in SENTENCES}
    assert key("this is no sentence") not in keys


def test_the_files_of_a_folder_that_exclude_nothing_are_counted_in_a_line(tmp_path, capsys):
    for name in ("a.txt", "b.jsonl", "deep/c.txt.gz", "deep/d.pos", ".hidden.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Two dogs run")
    assert read_exclusion([str(tmp_path)]) == {key("Two dogs run")}
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"warning: 3 files in --exclude '{tmp_path}' are not txt, csv or tsv and exclude nothing, "
        f"the first '{tmp_path / 'b.jsonl'}': write their sentences to such files"
    )


def test_a_script_without_blanks_between_words_is_text(tmp_path):
    (tmp_path / "a.tsv").write_text("1\t两只狗在跑。\tTwo dogs run\n", encoding="utf-8")
    keys = read_exclusion([str(tmp_path / "a.tsv")])
    assert keys == {key(text) for text in ("1", "两只狗在跑", "two dogs run")}


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "utf-8"])
def test_sentences_in_the_encoding_of_the_input(tmp_path, capsys, encoding):
    """Beside a file in UTF-8, which is read as that."""
    texts = {"a.txt": ("两只狗在跑。", encoding), "b.txt": ("她在唱歌。", "utf-8")}
    for name, (text, written) in texts.items():
        (tmp_path / name).write_text(f"{text}\nTwo dogs", encoding=written)
    found = read_exclusion([str(tmp_path)], None, encoding)
    assert found == {key(text) for text in ("两只狗在跑", "她在唱歌", "two dogs")}
    assert capsys.readouterr().err == ""


def test_only_a_line_break_ends_a_sentence(tmp_path):
    """As in a corpus: U+2028 and the like are white space in a sentence."""
    for ending in ("txt", "csv"):
        (tmp_path / f"a.{ending}").write_text("Two\u2028dogs\x85run\r\n", encoding="utf-8")
        keys = read_exclusion([str(tmp_path / f"a.{ending}")])
        assert keys == {key("Two dogs run")}


def test_the_lines_after_an_open_quote_are_sentences_too(tmp_path):
    """In a file that is longer than the cells that are read from a corpus."""
    (tmp_path / "a.csv").write_text('text\n"open\n' + f"{'word ' * 300_000}\n" * 3 + "the end\n")
    assert (tmp_path / "a.csv").stat().st_size > MOST_CELL
    keys = read_exclusion([str(tmp_path / "a.csv")])
    assert keys > {key(text) for text in ("text", "open", "word" * 300_000, "the end")}


def test_several_files_go_together_and_a_row_is_hit_by_any_text(tmp_path):
    for name, text in (("a.txt", SENTENCES[0]), ("b.txt", SENTENCES[2])):
        (tmp_path / name).write_text(text)
    excluded = read_exclusion([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    assert excluded == {key(SENTENCES[0]), key(SENTENCES[2])}
    counts = Counter()
    columns = [["ice", SENTENCES[0], "?!", "sea"], ["a", SENTENCES[2], "", "two DOGS run!"]]
    assert not_excluded(columns, excluded, counts) == [True, False, True, False]
    assert counts.pop("dropped.excluded") == 2
    assert counts == {f"hit.{key(SENTENCES[0]).hex()}": 1, f"hit.{key(SENTENCES[2]).hex()}": 2}


def test_against_a_slow_comparison(tmp_path):
    draw = random.Random(0)
    texts = ["".join(draw.choices("aAbB .,-_", k=draw.randrange(1, 6))) for _ in range(400)]
    (tmp_path / "a.txt").write_text("\n".join(texts[:40]) + "\nthe end")
    excluded = read_exclusion([str(tmp_path / "a.txt")])

    def slow(text):
        return "".join(c for c in text.lower() if c in string.ascii_letters)

    out = {slow(text) for text in texts[:40]} - {""}
    hits = [key(text) in excluded for text in texts]
    assert hits == [slow(text) in out for text in texts]
    assert 40 <= sum(hits) + 40 < 400


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "has no sentences"),
        (b"?!\n\n", "has no sentences"),
        ("two dogs\n".encode("utf-16"), "is UTF-16: convert it to UTF-8"),
    ],
)
def test_files_without_sentences_are_reported(tmp_path, content, message):
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_exclusion([str(path)])


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(UserError, match=r"a\.txt' is a pipe or a device: give a file or a folder"):
        read_exclusion([str(tmp_path / "a.txt")])


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt.gz", "a.parquet"])
def test_a_file_of_another_format_is_refused(tmp_path, name):
    """None of its lines would exclude anything."""
    (tmp_path / name).write_text('{"text": "Two dogs run"}')
    ending = name[1:]
    with pytest.raises(UserError, match=f"ends in '{ending}': write its sentences to a txt, csv"):
        read_exclusion([str(tmp_path / name)])
