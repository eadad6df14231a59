"""cotbert prepare with cleaning, splitting and filters: what is kept, every row accounted for."""

from __future__ import annotations

import json

import pytest

from cotbert_core.encoder.backbone import load_tokenizer
from pipelines.cli import main
from pipelines.prepare import prepare
from pipelines.preparing.options import PrepareOptions
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


def accounted(manifest):
    """Every row that was read, or added by splitting, is a row, dropped or sampled out."""
    left = manifest["rows"] + sum(manifest["dropped"].values()) + manifest["sampled_out"]
    return manifest["rows_read"] + manifest["added"] == left


def test_the_command_cleans_splits_filters_and_counts(rows, bert_folder, capsys):
    command = ["prepare", "--input", str(rows), "--encoder", bert_folder, "--split", "en"]
    command += ["--clean", "urls,markup", "--max-non-letters", "0.5", "--repeated", "0.6"]
    output = rows.parent / "out"
    assert main([*command, "--min-tokens", "3", "--output", str(output)]) == 0
    corpus = Corpus.open(output)
    assert sorted(corpus.texts().values()) == [
        "A man is playing the guitar.",
        "See for the price of oil.",
        "Two dogs run across the field!",
    ]
    manifest = corpus.manifest
    assert manifest["changed"] == {"markup": 1, "split": 1, "urls": 1}
    assert manifest["dropped"] == {
        "duplicate": 1,
        "emptied_by_markup": 1,
        "max_non_letters": 1,
        "min_tokens": 1,
        "repeated": 1,
    }
    assert (manifest["rows_read"], manifest["added"], accounted(manifest)) == (7, 1, True)
    assert manifest["source"]["cleaning"] == {
        "steps": ["markup", "urls"],
        "split": "en",
        "min_tokens": 3,
        "max_non_letters": 0.5,
        "repeated": 0.6,
    }
    result = json.loads((output / "result.json").read_text())
    assert (result["added"], result["changed_urls"], result["dropped_min_tokens"]) == (1, 1, 1)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["min_tokens", "1", "12.5", "%"] in printed
    assert "texts changed" in (output / "report.html").read_text()


def test_without_options_nothing_is_changed(rows, bert_folder):
    prepare(PrepareOptions((str(rows),), bert_folder), rows.parent / "out")
    corpus = Corpus.open(rows.parent / "out")
    assert sorted(corpus.texts().values()) == sorted(ROWS)
    assert corpus.manifest["changed"] == {}
    assert corpus.manifest["source"]["cleaning"] == {}


def test_a_bound_above_the_length_counts_whole_sentences(tmp_path, bert_folder):
    """The ids are cut to 4 tokens; whether a sentence has more than 8 is asked before that."""
    texts = ["man " * n for n in (2, 5, 8, 9, 30)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    command = ["prepare", "--input", str(tmp_path / "a.txt"), "--encoder", bert_folder]
    command += ["--max-length", "4", "--max-tokens", "8", "--output", str(tmp_path / "out")]
    assert main(command) == 0
    corpus = Corpus.open(tmp_path / "out")
    tokenizer = load_tokenizer(bert_folder)
    expected = [t.strip() for t in texts if tokenizer([t], 100).lengths[0] <= 8]
    assert sorted(corpus.texts().values()) == sorted(expected)
    assert len(expected) == 3
    assert corpus.manifest["dropped"] == {"max_tokens": 2}
    assert corpus.manifest["truncated"] == 2
    assert max(map(len, corpus.sentences())) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clean", "html"], "unknown cleaning step 'html'"),
        (["--split", "xx"], "a language without sentence rules"),
        (["--repeated", "2"], "repeated is 2.0: give a share from 0 to 1"),
        (["--min-tokens", "9", "--max-tokens", "3"], "min_tokens is 9 and max_tokens is 3"),
        (["--language", "klingon"], "unknown language to keep 'klingon'"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(rows, bert_folder, capsys, options, message):
    command = ["prepare", "--input", str(rows), "--encoder", bert_folder, *options]
    assert main([*command, "--output", str(rows.parent / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (rows.parent / "out").exists()


def test_paired_texts_are_not_split(tmp_path, bert_folder, capsys):
    path = tmp_path / "pairs.csv"
    path.write_text("text,other\nA man. A dog.,A man\n")
    command = ["prepare", "--input", str(path), "--encoder", bert_folder, "--split", "en"]
    command += ["--augmented-column", "other", "--output", str(tmp_path / "out")]
    assert main(command) == 2
    assert "cannot be matched" in capsys.readouterr().err
