"""Text files whose lines are wrapped: the same texts from any shards, and when a user is told."""

from __future__ import annotations

import json
import random
import re
import textwrap

import pytest
from read_inputs import read_all

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.reading import wrapped_lines
from pipelines.reading.documents import documents_of
from pipelines.reading.readers import read
from pipelines.reading.sources import plan
from pipelines.storage.corpus import Corpus

SENTENCES = [
    "A man is playing the guitar and a woman is singing a song on the stage.",
    "Two dogs run across the green field while the children watch the penguin on the ice.",
    "It's what he didn't say that they'll remember, isn't it, when the price of oil rises?",
]


def written(seed):
    """Paragraphs, headings and lists as wrapped lines, with several blank lines between."""
    draw = random.Random(seed)
    lines = []
    for number in range(12):
        text = " ".join(draw.choices(SENTENCES, k=draw.randint(1, 3)))
        if number % 4 == 0:
            lines += ["", f"# Heading {number}"]
        elif number % 4 == 1:
            lines += [
                f"- item {number}",
                "  that goes on",
                "2. second",
                "* third",
                "|a|b|",
                "--- rule",
            ]
        else:
            lines += [*[""] * draw.randint(1, 3), *textwrap.wrap(text, draw.randint(20, 60))]
    return "\n".join(lines) + draw.choice(["", "\n", "\n\n"])


def expected(content):
    """The texts, from the whole content at once."""
    begin = r"\n(?=\s*(?:#{1,6}|[-*+]|\d{1,3}[.)])\s|\s*\|)"
    found = [part for block in re.split(r"\n\s*\n", content) for part in re.split(begin, block)]
    return [" ".join(text.split()) for text in found if text.strip()]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [1, 40, 1 << 20])
def test_texts_are_those_of_the_whole_file(tmp_path, seed, size):
    content = written(seed)
    (tmp_path / "a.md").write_text(content)
    found = read_all(tmp_path / "a.md", wrapped=True, shard_bytes=size)
    assert found.texts == expected(content)
    assert len(set(found.ids)) == len(found.ids)
    assert found.ids == sorted(found.ids)
    assert found.dropped == {}
    limited = read_all(tmp_path / "a.md", wrapped=True, shard_bytes=size, limit=5)
    assert limited.texts == found.texts[:5]
    assert len(found.texts) < len(read_all(tmp_path / "a.md").texts), "lines are others"


def test_a_paragraph_is_a_document_of_all_its_texts(tmp_path):
    """One of several texts if it holds a list."""
    (tmp_path / "a.txt").write_text("One line\ngoes on.\n- item\n- other\n\nTwo.\n")
    made = plan([str(tmp_path / "a.txt")], wrapped=True, documents="paragraph")
    shard = made.shards[0]
    (piece,) = read(shard, made)
    assert piece.texts == ["One line goes on.", "- item", "- other", "Two."]
    ids, copies = documents_of(piece, shard, made)
    assert len(set(ids[:3])) == 1 != ids[3]
    assert list(copies) == [0, 0, 0, 1]


def test_a_heading_ends_with_its_line(tmp_path):
    (tmp_path / "a.md").write_text("# One\nTwo goes\non.\n ## Three\n\n#hashtag\nfour\n")
    texts = ["# One", "Two goes on.", "## Three", "#hashtag four"]
    assert read_all(tmp_path / "a.md", wrapped=True).texts == texts


def test_a_rule_ends_a_text_and_is_no_text(tmp_path):
    """Setext, reStructuredText and AsciiDoc headings, fences and the lines around front matter."""
    content = "---\nTitle\n=====\nOne\n```\n==  ==\n.. a\n=== ===\ntwo --- three\n-----x\n***\n--\n"
    (tmp_path / "a.rst").write_text(content)
    texts = ["Title", "One", "== == .. a", "two --- three -----x", "--"]
    assert read_all(tmp_path / "a.rst", wrapped=True).texts == texts
    assert wrapped_lines.paragraphs_of(content).split("\n") == texts


def test_a_fence_and_the_line_of_a_table_are_no_text(tmp_path):
    content = (
        "One\n```python\nf(x)\n```\n~~~ {.r}\ng\n~~~\n``` a b\n:-|\n"
        "| a | b |\n|:--|--:|\n| c | d |\n+---+---+\ne | f\n--- | ---\ng\n+===+\nc++ --x\n"
    )
    (tmp_path / "a.md").write_text(content)
    texts = ["One", "f(x)", "g", "``` a b :-|", "| a | b |", "| c | d |", "e | f", "g", "c++ --x"]
    assert read_all(tmp_path / "a.md", wrapped=True).texts == texts
    assert wrapped_lines.paragraphs_of(content).split("\n") == texts


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("Ann wrote:\n> It was\n> late.\nNo.\n", ["Ann wrote:", "It was late.", "No."]),
        ("> > A\n> > b\n>\n> C\n>> d\n >  > e\n", ["A b", "C", "d e"]),
        ("> # Note\n> - one\n>   two\n\n> 3 men\n> 4", ["# Note", "- one two", "3 men 4"]),
        ("x is\n> 5 here\n", ["x is > 5 here"]),
        ("a\n>>> f(x)\n>From b\n->\nc > d", ["a >>> f(x) >From b -> c > d"]),
    ],
    ids=["mail", "nested", "Markdown", "number", "others"],
)
def test_a_quotation_is_a_text_without_its_marks(tmp_path, content, texts):
    (tmp_path / "a.txt").write_text(content)
    assert read_all(tmp_path / "a.txt", wrapped=True).texts == texts
    assert wrapped_lines.paragraphs_of(content).split("\n") == texts


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("\u518d\u3059\n  \u308b\u3002\nbash\n\u306f", "\u518d\u3059\u308b\u3002 bash \u306f"),
        ("\u8d70\u2026\n\u201c\u5979\nb\u2014\nb", "\u8d70\u2026\u201c\u5979 b\u2014 b"),
        ("\ud55c\uad6d\n\uc5b4", "\ud55c\uad6d \uc5b4"),
        ("die Fehler\u2010\n diagnosen \u00fc\u00ad\n\u00fc", "die Fehlerdiagnosen \u00fc\u00fc"),
        ("die QUELL\u2010\nDatei, Kurz-\nund", "die QUELL\u2010 Datei, Kurz- und"),
    ],
    ids=["Japanese", "Chinese", "Korean", "divided", "hyphens"],
)  # fmt: skip
def test_a_line_break_is_a_blank_only_between_words(tmp_path, content, text):
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    assert read_all(tmp_path / "a.txt", wrapped=True).texts == [text]
    assert wrapped_lines.paragraphs_of(content) == text


def test_a_text_that_is_too_long_is_dropped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(wrapped_lines, "MOST_LINE_BYTES", 30)
    (tmp_path / "a.txt").write_text(f"{'word ' * 3}\n{'word ' * 4}\n\nshort\nline\n")
    found = read_all(tmp_path / "a.txt", wrapped=True)
    assert found.texts == ["short line"]
    assert found.dropped == {"too_long": 1}


def test_input_without_a_text_file_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text\nTwo dogs\n")
    with pytest.raises(UserError, match=r"wrapped is given and the input, such as .*a\.csv"):
        plan([str(tmp_path / "a.csv")], wrapped=True)


RUSSIAN = (
    "Сегодня утром мы вышли из дома раньше обычного, потому что поезд уходил в шесть часов. "
    "Дорога до станции заняла почти сорок минут, и снег скрипел под ногами всю дорогу. "
)
ARABIC = "ذهب الولد إلى المدرسة في الصباح الباكر ثم عاد إلى البيت مع أصدقائه قبل غروب الشمس. "
CHINESE = (
    "今天早上我们比平时更早离开家因为火车六点就要出发。去车站的路走了将近四十分钟一路上都在下雪。"
)
CHINESE_LINES = [CHINESE[at : at + 18] for at in range(0, len(CHINESE), 18)]
WRAPPED = "\n\n".join(textwrap.fill(" ".join(SENTENCES), 50) for _ in range(3))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (WRAPPED, True),
        (WRAPPED.replace("\n", "\r\n"), True),
        (textwrap.fill(RUSSIAN * 6, 60), True),
        (textwrap.fill(ARABIC * 6, 40), True),
        ("\n\n".join(["\n".join(CHINESE_LINES)] * 4), True),
        ("\n".join([*RUSSIAN.split(". "), *ARABIC.split(". ")] * 9), False),
        (CHINESE.replace("。", "。\n") * 9, False),
        ("\n".join(SENTENCES * 3), False),
        ("\n".join(text.lower() + " ." for text in SENTENCES * 3), False),
        ("two dogs run\n" * 50, False),
        (
            "how to cook rice\nbest laptop for a student\noil price\nwho plays the guitar\n" * 5,
            False,
        ),
        ("\n\n".join(SENTENCES * 3), False),
        ("", False),
    ],
    ids=[
        "wrapped",
        "carriage returns",
        "Russian",
        "Arabic",
        "Chinese",
        "lines of Russian and Arabic",
        "lines of Chinese",
        "lines",
        "lower case",
        "equal lines",
        "queries",
        "paragraphs",
        "empty",
    ],
)
def test_wrapped_lines_are_noticed(tmp_path, content, found):
    (tmp_path / "a.txt").write_bytes(content.encode())
    made = plan([str(tmp_path / "a.txt")])
    assert made.found.files["wrapped"] == ([str(tmp_path / "a.txt")] if found else [])
    assert plan([str(tmp_path / "a.txt")], wrapped=True).found.files["wrapped"] == []


@pytest.mark.usefixtures("unrecorded")
def test_sentences_go_over_lines(tmp_path, bert_folder, capsys):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{WRAPPED} He has {number} dogs.\n")
    words = ["prepare", "--input", str(tmp_path / "*.txt"), "--split", "en", "--encoder"]
    words += [bert_folder, "--max-length", "90", "--output"]
    assert main([*words, str(tmp_path / "lines")]) == 0
    said = capsys.readouterr().err
    assert "and 2 more hold lines that end within a sentence, and each is read as a text" in said
    assert main([*words, str(tmp_path / "joined"), "--wrapped"]) == 0
    assert "--wrapped" not in capsys.readouterr().err
    texts = set(Corpus.open(tmp_path / "joined").texts().values())
    assert texts == {*SENTENCES, *(f"He has {number} dogs." for number in range(3))}
    assert Corpus.open(tmp_path / "joined").manifest["source"]["wrapped"] is True
    assert "wrapped" not in Corpus.open(tmp_path / "lines").manifest["source"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Hi\n\nIt\nis broken\r\n \r\nBob\r", ["Hi", "It is broken", "Bob"]),
        ("# One\nTwo.\n - a\n   list\n2. three", ["# One", "Two.", "- a list", "2. three"]),
        ("a\n| b | c |\n\t| d |\n\u2022 e", ["a", "| b | c |", "| d |", "\u2022 e"]),
        ("-1 is\n1994. It\n#hashtag\x85and\u2028more", ["-1 is 1994. It #hashtag and more"]),
        (" a  b\t\u00a0c ", ["a b c"]),
        ("\n \n", []),
    ],
)  # fmt: skip
def test_a_text_has_a_line_for_each_paragraph(text, lines):
    assert wrapped_lines.paragraphs_of(text) == "\n".join(lines)


PAGE = """# Setup

Install the <b>package</b> first. Then
run it.

## Options
- fast mode
- slow&#10;mode

https://a.org
"""


@pytest.mark.usefixtures("unrecorded")
def test_paragraphs_headings_and_items_end_a_sentence(tmp_path, bert_folder):
    """Of a page in a row; the page on one line has sentences that run into each other."""
    pages = [PAGE, " ".join(f"{PAGE} Two pages.".split())]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": page}) for page in pages))
    words = ["prepare", "--input", str(tmp_path / "a.jsonl"), "--encoder", bert_folder, "--split"]
    words += ["en", "--documents", "row", "--clean", "markup,urls", "--max-length", "90"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 0
    assert list(Corpus.open(tmp_path / "out").texts().values()) == [
        *("Setup", "Install the package first.", "Then run it."),
        *("Options", "- fast mode", "- slow mode"),
        *("Setup Install the package first.", "## Options - fast mode - slow mode Two pages."),
    ]


def test_a_page_about_data_is_read_where_there_are_only_texts(tmp_path, capsys):
    for name in ("README.md", "notes.rst", "requirements.txt"):
        (tmp_path / name).write_text("Two dogs\n")
    pages = plan([str(tmp_path)])
    assert [len(pages.files), pages.ignored] == [3, 0]
    assert capsys.readouterr().err == ""
    (tmp_path / "requirements.txt").unlink()
    (tmp_path / "data.csv").write_text("text\nA man\n")
    made = plan([str(tmp_path)])
    assert made.files == [str(tmp_path / "data.csv")]
    assert made.ignored == 2
    assert "(2) are not read beside data files" in capsys.readouterr().err
    named = plan([str(tmp_path / "data.csv"), str(tmp_path / "README.md")])
    assert [len(named.files), named.ignored] == [2, 0]
