"""Sentences to token ids, the full-stop rule, and ragged lists of ids."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.templates.tokenizing import SentenceTokenizer, end_with_full_stop, is_byte_level

LISTS = [[5, 6, 7], [], [8], [1, 2, 3, 4, 5]]


def test_full_stop_unless_the_sentence_ends_in_one_of_four():
    assert [end_with_full_stop(s) for s in ("A man", "A man!")] == ["A man.", "A man!."]
    for kept in ("A man.", "A man?", '"A man"', "a man'", ""):
        assert end_with_full_stop(kept) == kept


def test_ids_are_the_tokenizers_without_special_tokens(encoder_folder, family, sentences):
    tokenizer = load_tokenizer(encoder_folder)
    blank = " " if family == "cot-roberta" else ""
    ids = tokenizer(sentences, 1000)
    assert tokenizer(["", "a"], 8).lengths.tolist() == [0, 1]
    assert is_byte_level(tokenizer.hf.backend_tokenizer) == bool(blank)
    for i, sentence in enumerate(sentences):
        slow = tokenizer.hf.encode(blank + sentence, add_special_tokens=False)
        assert ids[i].tolist() == slow


def test_ids_are_cut_to_max_length(encoder_folder, sentences):
    tokenizer = load_tokenizer(encoder_folder)
    whole, cut = tokenizer(sentences, 1000), tokenizer(sentences, 4)
    assert whole.lengths.max() > 4, "premise"
    assert [row.tolist() for row in cut] == [row[:4].tolist() for row in whole]
    assert [row.tolist() for row in whole.cut(4)] == [row.tolist() for row in cut]


def test_settings_of_the_tokenizer_do_not_leak_in(bert_folder, sentences):
    tokenizer = load_tokenizer(bert_folder)
    fresh = [row.tolist() for row in tokenizer(sentences, 1000)]
    padded = load_tokenizer(bert_folder).hf
    padded(sentences, padding=True, truncation=True, max_length=5)
    assert [row.tolist() for row in SentenceTokenizer(padded)(sentences, 1000)] == fresh


def test_hash_tells_tokenizers_apart(bert_folder, roberta_folder):
    first, again, other = map(load_tokenizer, (bert_folder, bert_folder, roberta_folder))
    assert first.hash == again.hash != other.hash


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast, name_or_path = False, "old"

    with pytest.raises(UserError, match="'old' has no fast tokenizer"):
        SentenceTokenizer(Slow())


def test_ragged_lists_are_held_cut_taken_and_concatenated():
    def lists(ragged):
        return [row.tolist() for row in ragged]

    ragged = Ragged.from_lists(LISTS)
    assert lists(ragged) == LISTS
    assert (len(ragged), ragged.lengths.tolist()) == (4, [3, 0, 1, 5])
    assert ragged.flat.dtype == np.int32
    for length in (1, 3, 5, 9):
        assert lists(ragged.cut(length)) == [one[:length] for one in LISTS]
    taken = ragged.take(np.array([3, 0, 0]))
    assert lists(taken) == [LISTS[3], LISTS[0], LISTS[0]]
    assert lists(concatenate([taken, ragged])) == [*lists(taken), *LISTS]
    assert len(concatenate([])) == 0
