"""The note of an adaptation on held-out documents of which it trains on another version."""

from __future__ import annotations

import json
import random
import re

import pytest

from pipelines.adapting.copy_notes import copied_documents, copy_notes
from pipelines.adapting.options import AdaptOptions
from pipelines.cleaning.options import CleanOptions
from pipelines.preparing.prepare import prepare
from pipelines.storage.corpus import Corpus

WORDS = (
    *("man", "penguin", "ice", "children", "dogs", "green", "field"),
    *("sea", "snow", "boat", "cat"),
)


def sentence(drawn):
    return " ".join(["The", *drawn.choices(WORDS, k=14)]) + "."


def edited(text, drawn):
    """Return a text with every tenth word or so changed, in each sentence."""
    changed = [drawn.choice(WORDS) if drawn.random() < 0.1 else word for word in text.split(" ")]
    return re.sub(r" (?=The )", ". ", " ".join(changed).replace(".", "")) + "."


@pytest.fixture
def prepared(tmp_path, bert_folder, unrecorded):
    def of(texts, documents="row"):
        rows = "\n".join(json.dumps({"text": text}) for text in texts)
        (tmp_path / "texts.jsonl").write_text(rows)
        clean = CleanOptions(split="en" if documents == "row" else None)
        options = AdaptOptions(
            (str(tmp_path / "texts.jsonl"),), bert_folder, documents=documents, clean=clean
        )
        prepare(options.prepare_options(), tmp_path / "corpus")
        return Corpus.open(tmp_path / "corpus")

    return of


def own_texts(drawn):
    return [" ".join(sentence(drawn) for _ in range(4)) for _ in range(80)]


def two_versions():
    drawn = random.Random(0)
    texts = own_texts(drawn)
    return [*texts, *(edited(text, drawn) for text in texts)]


def test_versions_of_test_documents_are_counted(prepared, bert_folder):
    corpus = prepared(two_versions())
    copied, documents = copied_documents(corpus, bert_folder)
    assert 6 <= documents <= 8
    assert copied > documents / 2  # both versions of a document may be held out
    options = AdaptOptions(("texts.jsonl",), bert_folder)
    (note,) = copy_notes(corpus, bert_folder, options)
    assert note.startswith(
        f"{copied} of {documents} test documents have much of their wording in common"
    )


def test_versions_of_which_few_are_trained_on_need_no_note(prepared, bert_folder):
    corpus = prepared(two_versions())
    few = AdaptOptions(("texts.jsonl",), bert_folder, max_steps=1, batch_size=16)
    assert few.batch_size < 0.05 * len(corpus)
    assert copy_notes(corpus, bert_folder, few) == []


def test_documents_of_one_template_or_of_their_own_need_no_note(prepared, bert_folder):
    drawn = random.Random(0)
    around = "Thank you for number {n} of the dogs in the green field and on the ice."
    texts = [f"{text} {around.format(n=n)}" for n, text in enumerate(own_texts(drawn))]
    corpus = prepared(texts)
    assert copied_documents(corpus, bert_folder) == (0, 4)
    assert copy_notes(corpus, bert_folder, AdaptOptions(("texts.jsonl",), bert_folder)) == []


def test_sentences_without_documents_need_no_note(prepared, bert_folder):
    drawn = random.Random(0)
    corpus = prepared([sentence(drawn) for _ in range(60)], documents="none")
    assert copy_notes(corpus, bert_folder, AdaptOptions(("texts.jsonl",), bert_folder)) == []
