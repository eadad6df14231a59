"""Rows with paired texts: their options, prepared, opened."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_inputs import prepared, run_prepare, write_rows
from tiny_corpus import rows as rows_of

from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.preparing.options import PrepareOptions, recognise_triples
from pipelines.preparing.shard_tasks import row_id
from pipelines.reading.columns import TRIPLES
from pipelines.reading.data_folder import make_data_folder
from pipelines.storage.corpus import Corpus, corpus_table, require_texts

pytestmark = pytest.mark.usefixtures("without_ray")

TRIPLE_OPTIONS = dict(
    zip(("text_column", "augmented_column", "negative_column"), TRIPLES, strict=True)
)
LONG = "the man saw a dog . " * 20
ROWS = [
    ("A man  is playing the guitar.", "A man plays, on a guitar", "Nobody plays"),
    ("Two dogs run", "dogs are\nrunning", LONG),
    ("Two dogs run", "dogs are running", "no dog is running"),  # equal in two texts of three
    (" A man is playing the guitar. ", "A man plays, on a guitar", "Nobody  plays"),  # as the first
    ("oil", "\u200b", "sea"),
    ("oil", "the oil", "\u200b"),
    ("oil", "", "sea"),
    ("oil", "the oil", "  \t"),
    ("", "the oil", "sea"),
    ("What do you want?", LONG, LONG),
]


def write(path: Path, rows) -> str:
    return write_rows(path, rows, TRIPLES)


def test_ids_of_texts_alone_never_change_and_those_of_rows_are_unambiguous():
    digest = hashlib.blake2b(b"Two dogs run", digest_size=8).digest()
    assert row_id("Two dogs run") == int.from_bytes(digest, "little") >> 1 == 4487941096842499786
    rows = [("a b", "c"), ("a", "b c"), ("a b c",), ("c", "a b"), ("a", "b", "c"), ("a", "b")]
    assert len({row_id(*row) for row in rows}) == len(rows)


def test_options_become_triples_once_and_only_when_no_column_is_named(tmp_path, capsys):
    path = write(tmp_path / "a.csv", ROWS)
    options = PrepareOptions((path,), "bert")
    found = recognise_triples(options)
    assert found == PrepareOptions((path,), "bert", **TRIPLE_OPTIONS)
    named = PrepareOptions((path,), "bert", text_column="sent1")
    for other in (found, named, PrepareOptions((path,), "bert", augmented_column="sent1")):
        assert recognise_triples(other) is other
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{path}: reading columns sent0, sent1, hard_neg as triples"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negative_column": "n"}, "negative_column is 'n' and there is no augmented_column"),
        ({"augmented_column": "text"}, "columns text, text name one twice"),
        ({"augmented_column": "a", "negative_column": "a"}, "columns text, a, a name one twice"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        PrepareOptions(("a.csv",), "bert", **options)


@pytest.mark.parametrize("option", ["--text-column", "--augmented-column", "--negative-column"])
def test_triples_and_a_column_are_refused_together(option, capsys):
    assert run_prepare("o", "e", "--input", "a.csv", "--triples", option, "sent0") == 2
    message = f"--triples names all three columns: leave out {option} or --triples"
    assert message in capsys.readouterr().err


def corpus_of(home: Path, parts, **manifest) -> Corpus:
    """A corpus folder of parts, each a list of rows of id lists, a list for each text."""
    for number, rows in enumerate(parts):
        tokens = [Ragged.from_lists(lists) for lists in zip(*rows, strict=True)]
        texts = [pa.array(["t"] * len(rows))] * len(tokens)
        table = corpus_table(pa.array(range(len(rows)), pa.int64()), texts, tokens)
        pq.write_table(
            table, make_data_folder(home) / f"part-{number:06}.parquet", row_group_size=2
        )
    facts = {"max_length": 9, "encoder": "bert", "tokenizer_hash": "0"}
    write_json(home / "manifest.json", {"rows": sum(map(len, parts)), **facts, **manifest})
    return Corpus.open(home)


PARTS = [[([1], [2, 3], [4]), ([5, 6], [7], [8, 9])], [([10], [11], [12, 13, 14])] * 3]


@pytest.mark.parametrize("columns", [(), ("augmented",), ("augmented", "negative")])
def test_a_batch_holds_each_row_with_its_paired_texts(tmp_path, columns):
    parts = [[row[: 1 + len(columns)] for row in part] for part in PARTS]
    corpus = corpus_of(tmp_path, parts, columns=list(columns))
    batch = corpus.batch()
    assert (len(batch), batch.columns, corpus.columns) == (5, columns, columns)
    assert batch.sentences.flat.dtype == np.int32
    read = [batch.sentences, *(getattr(batch, name) for name in columns)]
    rows = [tuple(lists[n].tolist() for lists in read) for n in range(5)]
    assert rows == [row for part in parts for row in part]


@pytest.mark.parametrize(
    ("there", "needed", "options"),
    [
        ((), ("augmented",), "--augmented-column, or with --triples$"),
        (("augmented",), ("augmented", "negative"),
         "--augmented-column and --negative-column, or with --triples$"),
    ],
)  # fmt: skip
def test_a_corpus_without_paired_texts_says_what_is_needed(there, needed, options):
    require_texts("dogs", there, there, "cot-bert")
    with pytest.raises(UserError, match=(
        rf"corpus 'dogs' has no column '{needed[-1]}_text', which method 'denosent' needs: "
        rf"prepare it with {options}"
    )):  # fmt: skip
        require_texts("dogs", there, needed, "denosent")


def expected_rows(encoder_folder, max_length):
    """What a corpus of ROWS holds by its texts, and the counts: row by row with transformers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    blank = " " if "roberta" in encoder_folder else ""
    kept, counts = {}, Counter()
    for row in (tuple(" ".join(text.split()) for text in row) for row in ROWS):
        full = [tokenizer(blank + t, add_special_tokens=False)["input_ids"] for t in row]
        first = next((n for n, t in enumerate(row) if not t), None)
        unseen = next((n for n, ids in enumerate(full) if not ids), None)
        if first is not None:
            counts[("", "augmented_", "negative_")[first] + "empty"] += 1
        elif row in kept:
            counts["duplicate"] += 1
        elif unseen is not None:
            counts[("", "augmented_", "negative_")[unseen] + "no_tokens"] += 1
        else:
            kept[row] = [ids[:max_length] for ids in full]
            counts["truncated"] += any(len(ids) > max_length for ids in full)
    return kept, counts


def test_a_corpus_holds_the_tokens_of_every_text(tmp_path, encoder_folder):
    paths = [write(tmp_path / "a.csv", ROWS[:5]), write(tmp_path / "b.jsonl", ROWS[5:])]
    options = {"max_length": 12, **TRIPLE_OPTIONS}
    corpus = prepared(tmp_path / "corpus", encoder_folder, *paths, **options)
    kept, counts = expected_rows(encoder_folder, 12)
    table = rows_of(corpus.path)
    texts, lists = table.schema.names[1::2], table.schema.names[2::2]
    assert texts == ["text", "augmented_text", "negative_text"]
    assert lists == ["input_ids", "augmented_ids", "negative_ids"]
    assert [str(t) for t in table.schema.types[1:]] == ["string", "list<element: int32>"] * 3
    rows = table.to_pylist()
    assert {tuple(r[n] for n in texts): [r[n] for n in lists] for r in rows} == kept
    assert {r["id"] for r in rows} == {row_id(*row) for row in kept}
    assert len(rows) == len(kept) == corpus.manifest["rows"]
    assert corpus.manifest["truncated"] == counts.pop("truncated") == 2
    assert corpus.manifest["dropped"] == counts
    assert corpus.columns == ("augmented", "negative")
    assert corpus.batch().negative[0].tolist() == rows[0]["negative_ids"]


def test_a_prepared_corpus_is_input_again(tmp_path, made):
    first = made(write(tmp_path / "a.jsonl", ROWS), name="one", **TRIPLE_OPTIONS)
    columns = {"augmented_column": "augmented_text", "negative_column": "negative_text"}
    again = made(first.path, name="again", **columns)
    assert rows_of(again.path).equals(rows_of(first.path))


def test_triples_by_command(tmp_path, bert_folder, made, capsys):
    path = write(tmp_path / "a.csv", ROWS)
    for name, words, told in (("named", ["--triples"], 0), ("known", [], 1)):
        assert run_prepare(tmp_path / name, bert_folder, "--input", path, *words) == 0
        captured = capsys.readouterr()
        assert captured.err.count("as triples") == told
        assert "train simcse-supervised --corpus" in captured.out
    named, known = Corpus.open("named"), Corpus.open("known")
    assert named.digest == known.digest
    assert named.manifest["source"]["negative_column"] == "hard_neg"
    (tmp_path / "b.csv").write_bytes(b"sent0,sent1,hard_neg\na,caf\xe9,c\n")
    with pytest.raises(UserError, match=r"cannot be read \(1 augmented_invalid_utf8\)"):
        made("b.csv", name="bad", on_invalid="fail", **TRIPLE_OPTIONS)
