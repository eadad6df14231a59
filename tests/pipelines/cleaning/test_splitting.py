"""Running text to sentences: ends that are none, and languages that are not there."""

from __future__ import annotations

import pytest
import sentencex

from cotbert_core.errors import UserError
from pipelines.cleaning import splitting
from pipelines.cleaning.splitting import LANGUAGES, check_splitter, split


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Ames paid 3.5 dollars.", "He left."]),
        ("en", ["Was it so?", "No!", "It rained..."]),
        ("en", ["The U.S. Army came.", "It was in St. Louis, Mo. in 1920."]),
        ("en", ['He said "Stop." and ran.', "Nobody (not even Ann.) saw it.", "End."]),
        ("de", ["Das ist z.B. gut.", "Am 3. Mai kam er."]),
        ("zh", ["他走了。", "我来了！", "你呢？"]),
        ("hi", ["वह गया।", "मैं आया।"]),
        ("ru", ["Он ушёл.", "Она осталась."]),
    ],
)
def test_split(language, sentences):
    blank = "" if language == "zh" else " "
    assert split(blank.join(sentences), language) == sentences


def test_one_sentence_is_one_and_nothing_gives_none():
    for text in ("one", "  one.  ", "No end at all"):
        assert split(text, "en") == [text.strip()]
    assert split(" \n ", "en") == []


@pytest.mark.parametrize("blank", ["\x85", "\xa0", "\u2003", "\u3000"])
def test_an_initial_before_a_blank_beyond_ascii_is_split(blank):
    """sentencex panics there."""
    assert split(f"J{blank}. Ames came. He left.", "en") == ["J . Ames came.", "He left."]


def test_nothing_is_lost(shared):
    """Of 300 paragraphs of WikiText-2 every character but blanks is in a sentence, in its order."""
    path = shared / "data" / "corpus" / "wikitext2_valid.txt"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:300]
    found = [split(line, "en") for line in lines]
    assert sum(map(len, found)) > 2 * len(lines)
    for line, sentences in zip(lines, found, strict=True):
        assert "".join("".join(sentences).split()) == "".join(line.split())


@pytest.mark.parametrize(
    "text",
    [
        "See torch.nn.Module for details.",
        "A :class:`~torch.Tensor` of floats.",
        "The option `a.Size of` is kept.",
        "Convert to pandas.DataFrame rows.",
        "It calls blk._can_hold first.",
        "The block nn.functional.Softmax.forward ends.",
    ],
)
def test_a_name_is_kept_whole(text):
    assert split(text, "en") == [text]


@pytest.mark.parametrize(
    "sentences",
    [
        ["1. Open the door.", "12. Close it."],
        ["It was 3.", "2. No"],
        ["6.9.1. Scope.", "It is as follows."],
        ["IV. The results.", "B. Their limits."],
        ["§ 3.1. Liability is limited.", "So do I.", "You too."],
    ],
)
def test_the_number_of_an_item_or_a_section_is_no_sentence(sentences):
    assert split(" ".join(sentences), "en") == sentences


@pytest.mark.timeout(60)
def test_code_without_a_blank_takes_time_in_proportion_to_its_length():
    """Quadratic time would take minutes here."""
    assert split("foo._bar" * 100_000, "en") == ["foo._bar" * 100_000]


def test_of_a_long_line_the_splitter_sees_a_part_at_a_time(monkeypatch):
    """Its time is quadratic in the number of quotations; a piece without an end stays whole."""
    seen, segment = [], sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda of, s: seen.append(len(s)) or segment(of, s))
    monkeypatch.setattr(splitting, "MOST_AT_ONCE", 100)
    sentences = [f"The name `part{n}` is number {n} of many." for n in range(50)]
    assert split(" ".join(sentences), "en") == sentences
    assert split("`" * 999, "en") == ["`" * 999]
    assert max(seen) == 100


def test_an_abbreviated_monsieur_is_no_sentence():
    sentences = ["M. Dupont est venu.", "Il part."]
    assert split(" ".join(sentences), "fr") == sentences


@pytest.mark.parametrize(
    "end", ["It was too long.", "He ran... and fell...", "He rated it 3.5 of 5 stars."]
)
def test_a_full_stop_without_a_blank_ends_a_sentence(end):
    assert split(f"{end}The film ended.", "en") == [end, "The film ended."]


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_splits(language):
    assert split("A b c! D e f!", language) == ["A b c!", "D e f!"]


def test_an_unknown_language_is_refused():
    for language in ("xx", "EN", "english", ""):
        message = f"split is {language!r}, .* without sentence rules: .* en, "
        with pytest.raises(UserError, match=message):
            check_splitter(language)
