"""cotbert prepare with cleaning, splitting and filters: what is kept, every row accounted for."""

from __future__ import annotations

import json

import pytest
from read_inputs import run_prepare

from cotbert_core.encoder.backbone import load_tokenizer
from pipelines.cleaning.options import CleanOptions
from pipelines.storage.corpus import Corpus

pytestmark = pytest.mark.usefixtures("without_ray")

ROWS = [
    "<p>A man is playing the guitar. Two dogs run across the field!</p>",
    "See https://example.org/a_b for the price of oil.",
    "Two dogs run across the field!",
    "<br>",
    "1234 5678 90!!",
    "Oil.",
    "no no no no no no",
]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(ROWS))
    return path


def test_the_command_cleans_splits_filters_and_counts(rows, bert_folder, capsys):
    words = "--split en --clean urls,markup --max-non-letters 0.5 --repeated 0.6 --min-tokens 3"
    output = rows.parent / "out"
    assert run_prepare(output, bert_folder, "--input", rows, *words.split()) == 0
    corpus = Corpus.open(output)
    assert sorted(corpus.texts().values()) == [
        "A man is playing the guitar.",
        "See for the price of oil.",
        "Two dogs run across the field!",
    ]
    manifest = corpus.manifest
    assert manifest["changed"] == {"markup": 1, "split": 1, "urls": 1}
    assert manifest["dropped"] == dict.fromkeys(
        ("duplicate", "emptied_by_markup", "max_non_letters", "min_tokens", "repeated"), 1
    )
    assert (manifest["rows_read"], manifest["added"], manifest["rows"]) == (7, 1, 3)
    assert manifest["source"]["cleaning"] == {
        "steps": ["markup", "urls"], "split": "en", "min_tokens": 3, "max_non_letters": 0.5,
        "repeated": 0.6,
    }  # fmt: skip
    result = json.loads((output / "result.json").read_text())
    assert (result["added"], result["changed_urls"], result["dropped_min_tokens"]) == (1, 1, 1)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["min_tokens", "1", "12.5", "%"] in printed
    assert "texts changed" in (output / "report.html").read_text()


def test_without_options_nothing_is_changed(rows, made):
    corpus = made(rows)
    assert sorted(corpus.texts().values()) == sorted(ROWS)
    assert (corpus.manifest["changed"], corpus.manifest["source"]["cleaning"]) == ({}, {})


def test_a_bound_above_the_length_counts_whole_sentences(tmp_path, bert_folder, made):
    """The ids are cut to 4 tokens; whether a sentence has more than 8 is asked before that."""
    texts = ["man " * n for n in (2, 5, 8, 9, 30)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    corpus = made(tmp_path / "a.txt", max_length=4, clean=CleanOptions(max_tokens=8))
    tokenizer = load_tokenizer(bert_folder)
    expected = [t.strip() for t in texts if tokenizer([t], 100).lengths[0] <= 8]
    assert sorted(corpus.texts().values()) == sorted(expected)
    assert len(expected) == 3
    assert (corpus.manifest["dropped"], corpus.manifest["truncated"]) == ({"max_tokens": 2}, 2)
    assert max(map(len, corpus.sentences())) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--clean html", "unknown cleaning step 'html'"),
        ("--min-tokens 9 --max-tokens 3", "min_tokens is 9 and max_tokens is 3"),
        ("--language klingon", "unknown language to keep 'klingon'"),
        ("--split en --augmented-column other", "cannot be matched"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(tmp_path, bert_folder, capsys, words, message):
    (tmp_path / "a.csv").write_text("text,other\nA man. A dog.,A man\n")
    path = tmp_path / "a.csv"
    assert run_prepare(tmp_path / "out", bert_folder, "--input", path, *words.split()) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
