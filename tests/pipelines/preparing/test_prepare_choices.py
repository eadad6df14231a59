"""What cotbert prepare leaves out or changes on request: exclusion, near duplicates, cleaning."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from read_inputs import run_prepare

from cotbert_core.encoder.backbone import load_tokenizer
from pipelines.cleaning.options import CleanOptions
from pipelines.cli import main
from pipelines.commands.prepare import next_training, prepare_again
from pipelines.preparing import driver
from pipelines.preparing.duplicates import sample_order
from pipelines.preparing.shard_tasks import row_id
from pipelines.storage.corpus import Corpus

TEXTS = [f"Text {n} says a thing. It is about the number {n}, it says." for n in range(90)]

pytestmark = pytest.mark.usefixtures("without_ray")

EVALUATION = [
    ("A man is playing the guitar.", "Two dogs run across the field"),
    ("The price of oil rose", "Oil"),
    ("Nobody said this", "Nor this"),
]
CORPUS = [
    "a man is playing the guitar",
    "TWO dogs run, across the field!",
    "Two dogs run across the field",
    "Two dogs run across the green field",
    "  Oil  ",
    "oil prices",
    "Penguins swim",
]


@pytest.fixture
def files(tmp_path):
    """A corpus in two files and, as SentEval's, an evaluation set in a folder."""
    (tmp_path / "a.txt").write_text("\n".join(CORPUS[:4]))
    (tmp_path / "b.txt").write_text("\n".join(CORPUS[4:]))
    home = tmp_path / "STS12"
    home.mkdir()
    (home / "STS.input.x.txt").write_text("".join(f"{a}\t{b}\n" for a, b in EVALUATION))
    (home / "STS.gs.x.txt").write_text("4.5\n1\n0\n")
    return tmp_path


def test_planted_evaluation_sentences_are_kept_out_and_counted(files, made, bert_folder, capsys):
    words = ("--input", files / "a.txt", files / "b.txt", "--exclude", files / "STS12")
    assert run_prepare(files / "out", bert_folder, *words) == 0
    corpus = Corpus.open(files / "out")
    assert sorted(corpus.texts().values()) == sorted([CORPUS[3], CORPUS[5], CORPUS[6]])
    result = json.loads((files / "out" / "result.json").read_text())
    assert corpus.manifest["dropped"] == {"excluded": 4}
    assert result["dropped_excluded"] == 4
    assert corpus.manifest["exclude_hits"] == result["exclude_hits"] == 3
    assert corpus.manifest["source"]["exclude_sentences"] == 6 + 3, "and the gold scores"
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["excluded", "4", "57.1", "%"] in printed
    everything = made(*words[1:3], name="all")
    assert len(everything) == 7
    assert "exclude_hits" not in everything.manifest


def test_the_excluded_texts_are_cleaned_and_split_as_the_corpus_is(files, made):
    text = "The film <i>begins</i> well.<br/>See https://a.b/c for its end."
    (files / "a.csv").write_text(f'text,label\n"{text} I left.",1\n')
    (files / "test.csv").write_text(f'text,label\n"{text}",1\n')
    options = {"clean": CleanOptions(steps=("markup", "urls"), split="en")}
    corpus = made(files / "a.csv", exclude=(str(files / "test.csv"),), **options)
    assert list(corpus.texts().values()) == ["I left."]
    assert corpus.manifest["exclude_hits"] == 2


def test_a_row_is_excluded_by_its_paired_text(files, made):
    (files / "a.csv").write_text("text,other\nice,The price of OIL rose\nsea,oil prices\n")
    options = {"augmented_column": "other", "exclude": (str(files / "STS12"),)}
    corpus = made(files / "a.csv", on_invalid="fail", **options)
    assert list(corpus.texts().values()) == ["sea"]


def test_one_of_near_duplicates_stays_whatever_the_order_of_files(tmp_path, made):
    draw = random.Random(0)
    groups = []
    for number in range(30):
        words = [f"{draw.choice('bcdfg')}{draw.randrange(10**6)}" for _ in range(15)]
        near = [*words[:-1], words[-1] + "s"]
        groups.append([" ".join(words), " ".join(near)] if number % 2 else [" ".join(words)])
    texts = [text for group in groups for text in group]
    names = [tmp_path / "a.txt", tmp_path / "b.txt"]
    names[0].write_text("\n".join(texts[20:]))
    names[1].write_text("\n".join(texts[:20] + texts[:3]))
    options = {"max_length": 64, "near_duplicates": 0.8}
    one, two = made(*names, name="one", **options), made(*names[::-1], name="two", **options)
    assert set(one.texts().values()) == {min(group, key=row_id) for group in groups}
    assert one.manifest["dropped"] == {"duplicate": 3, "near_duplicate": 15}
    assert one.digest == two.digest
    few = made(*names, name="few", sample=10, **options)
    ids = np.array(list(one.texts()))
    assert set(few.texts()) == set(ids[np.argsort(sample_order(ids))[:10]].tolist())
    assert few.manifest["sampled_out"] == 20
    assert set(few.texts()) != set(np.sort(ids)[:10].tolist()), "these would be held out"


def test_token_bounds_come_before_a_sample_and_the_choice_of_near_duplicates(
    tmp_path, bert_folder, made
):
    """Which would otherwise choose rows that the bounds drop, and lose both of a pair."""
    texts = ["man " * n for n in range(1, 31)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    found = made(tmp_path / "a.txt", sample=12, clean=CleanOptions(min_tokens=15)).manifest
    assert (found["rows"], found["dropped"], found["sampled_out"]) == (12, {"min_tokens": 14}, 4)
    words = ["man", "dog", "sea", "oil", "guitar"]
    short = [" ".join(random.Random(n).sample(words * 2, 10)) for n in range(20)]
    bound = int(load_tokenizer(bert_folder)(short[:1], 100).lengths[0])
    (tmp_path / "b.txt").write_text("\n".join([*short, *(f"{text} a" for text in short)]))
    options = {"near_duplicates": 0.8, "clean": CleanOptions(max_tokens=bound)}
    few = made(tmp_path / "b.txt", name="few", **options)
    assert sorted(few.texts().values()) == sorted(short)


def test_a_least_number_of_tokens_may_be_above_the_length(tmp_path, made):
    (tmp_path / "a.txt").write_text("\n".join("man " * n for n in (2, 9, 10, 30)))
    corpus = made(tmp_path / "a.txt", max_length=4, clean=CleanOptions(min_tokens=10))
    assert (corpus.manifest["rows"], corpus.manifest["dropped"]) == (2, {"min_tokens": 2})


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
    assert max(map(len, corpus.batch().sentences)) == 4


def test_a_part_may_lose_all_its_rows(tmp_path, made, monkeypatch):
    monkeypatch.setattr(driver, "PART_ROWS", 2)
    long = ["the man saw a dog", "two dogs saw the man"]
    (tmp_path / "a.txt").write_text("man\ndog\n")
    (tmp_path / "b.txt").write_text("\n".join(long))
    corpus = made(tmp_path / "a.txt", tmp_path / "b.txt", clean=CleanOptions(min_tokens=5))
    assert corpus.part_rows() == (0, 2)
    assert list(corpus.texts().values()) == long


def words_of(command):
    return [str(word) for word in command]


def test_the_same_corpus_is_prepared_for_another_encoder(
    files, bert_folder, roberta_folder, unrecorded
):
    """By the command that `pretrain --new` prints."""
    (files / "texts.csv").write_text("body;kind\n" + "".join(f'"{t}";x\n' for t in TEXTS))
    words = ("--input", files / "texts.csv", "--text-column", "body", "--delimiter", ";")
    words += ("--documents", "row", "--split", "en", "--hold-out", "5", "--query", "first")
    words += ("--clean", "urls,unicode", "--min-tokens", "2", "--max-length", "20")
    words += ("--exclude", files / "a.txt", files / "b.txt")
    assert run_prepare(files / "one", bert_folder, *words) == 0
    one = Corpus.open(files / "one")
    again = words_of(prepare_again(one, roberta_folder, "other"))
    assert again[-4:] == ["--encoder", roberta_folder, "--output", "other"]
    assert main(again) == 0
    other = Corpus.open(files / "other")
    assert other.texts() == one.texts()
    names = ("source", "documents", "held_out", "max_length", "dropped")
    assert [other.manifest[n] for n in names] == [one.manifest[n] for n in names]
    held = [(corpus.path / "held-out.parquet").read_bytes() for corpus in (one, other)]
    assert held[0] == held[1]


def test_an_augmented_corpus_is_prepared_from_its_own_texts(made, roberta_folder, unrecorded):
    path = "pairs.jsonl"
    with open(path, "w") as file:
        for number, text in enumerate(TEXTS):
            row = {"text": text, "augmented_text": text[:9], "of": number // 3}
            file.write(json.dumps(row) + "\n")
    corpus = made(path, augmented_column="augmented_text", max_length=50, documents="column:of")
    augmented = replace(corpus, manifest={**corpus.manifest, "augmentation": {}})
    assert main(words_of(prepare_again(augmented, roberta_folder, "other"))) == 0
    other = Corpus.open("other")
    assert (other.columns, other.texts()) == (corpus.columns, corpus.texts())
    assert other.manifest["max_length"] == 50
    numbers = [one.manifest["documents"]["documents"] for one in (other, corpus)]
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["simcse-base"]),
        ({"sample": 50}, ["simcse-base", "--batch-size", "25"]),
        ({"documents": "row", "clean": CleanOptions(split="en")}, ["documents"]),
        (
            {"documents": "row", "clean": CleanOptions(split="en"), "hold_out": 4},
            ["documents", "--set", "dev=own"],
        ),
        ({"documents": "row", "clean": CleanOptions(split="en"), "limit": 30}, ["simcse-base"]),
        ({"augmented_column": "again"}, ["denosent-base"]),
    ],
)
def test_the_next_training_suits_the_corpus(made, tmp_path, options, expected):
    """Of documents only if a batch of rows has another sentence in its document."""
    texts = [text if number < 60 else text.split(".")[0] for number, text in enumerate(TEXTS)]
    if options.get("limit"):
        texts = TEXTS[:20] + [f"Another text {n}" for n in range(60)]
        options = options | {"limit": 80}
    (tmp_path / "a.csv").write_text(
        "text,again\n" + "".join(f'"{text}","Again: {text}"\n' for text in texts)
    )
    command = words_of(next_training(made(tmp_path / "a.csv", **options), "an-encoder"))
    corpus = ["--corpus", str(tmp_path / "corpus"), "--encoder", "an-encoder"]
    assert command == ["train", expected[0], *corpus, *expected[1:], "--output", "runs/mine"]
