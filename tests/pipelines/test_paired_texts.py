"""Rows with paired texts: read from every format, dropped by reason, prepared, opened."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_corpus import rows as rows_of

from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.cli import main
from pipelines.prepare import prepare
from pipelines.preparing import driver
from pipelines.preparing.options import PrepareOptions, recognise_triples
from pipelines.preparing.shard_tasks import row_id
from pipelines.reading import sources
from pipelines.reading.columns import TRIPLES
from pipelines.reading.data_folder import make_data_folder
from pipelines.reading.readers import read
from pipelines.reading.sources import plan
from pipelines.storage.corpus import Corpus, corpus_table

TRIPLE_OPTIONS = {
    "text_column": "sent0",
    "augmented_column": "sent1",
    "negative_column": "hard_neg",
}
FORMATS = ("csv", "tsv", "jsonl", "parquet")
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
REASONS = {"augmented_empty": 1, "negative_empty": 1, "empty": 1}


def write(path: Path, rows, names=TRIPLES) -> str:
    """Rows of texts in the format of the path's suffix."""
    records = [dict(zip(names, row, strict=True)) for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path, row_group_size=3)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(records)
    return str(path)


def read_all(*paths, text="sent0", paired_columns=TRIPLES[1:], **options):
    """(rows of texts, rows read, dropped by reason) of all files."""
    made = plan([str(p) for p in paths], text, paired_columns=paired_columns, **options)
    pieces = [piece for shard in made.shards for piece in read(shard, made)]
    rows = [row for p in pieces for row in zip(p.texts, *p.paired_texts, strict=True)]
    dropped = sum((p.dropped for p in pieces), Counter())
    return rows, sum(p.read for p in pieces), dict(dropped)


def folded(row):
    return tuple(" ".join(text.split()) for text in row)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_rows(tmp_path, kind):
    rows, count, dropped = read_all(write(tmp_path / f"a.{kind}", ROWS))
    assert rows == [folded(row) for row in ROWS if all(folded(row))]
    assert (count, dropped) == (len(ROWS), REASONS)


def test_one_paired_text_is_read_without_the_other(tmp_path):
    path = write(tmp_path / "a.csv", [("a", "b", "")])
    assert read_all(path, paired_columns=["sent1"])[0] == [("a", "b")]
    assert read_all(path, paired_columns=[])[0] == [("a",)]


def test_ids_of_texts_alone_never_change_and_those_of_rows_are_unambiguous():
    digest = hashlib.blake2b(b"Two dogs run", digest_size=8).digest()
    assert row_id("Two dogs run") == int.from_bytes(digest, "little") >> 1 == 4487941096842499786
    rows = [("a b", "c"), ("a", "b c"), ("a b c",), ("c", "a b"), ("a", "b", "c"), ("a", "b")]
    assert len({row_id(*row) for row in rows}) == len(rows)


@pytest.fixture
def sick(tmp_path):
    """One triple, and two sentences that have none."""
    home = tmp_path / "SICK"
    home.mkdir()
    (home / "SICK_train.txt").write_text(
        "sentence_A\tsentence_B\tentailment_judgment\nTwo dogs\tdogs\tENTAILMENT\n"
        "oil\tTwo dogs\tCONTRADICTION\n"
    )
    return f"sick:{home}"


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
    command = "prepare --input a.csv --encoder e --output o --triples"
    assert main([*command.split(), option, "sent0"]) == 2
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
    write_json(home / "manifest.json", {"rows": sum(map(len, parts)), **manifest})
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


def test_an_older_corpus_has_no_paired_texts_and_says_what_is_needed(tmp_path):
    corpus = corpus_of(tmp_path, [[([1],)]])
    assert (corpus.columns, corpus.batch().columns) == ((), ())
    corpus.require((), "cot-bert")
    with pytest.raises(UserError, match=(
        rf"corpus '{tmp_path}' has no column 'augmented_text', which method 'denosent' needs: "
        r"prepare it again with --augmented-column, with --triples or from `sick:DIR`$"
    )):  # fmt: skip
        corpus.require(("augmented",), "denosent")


def test_a_corpus_of_pairs_lacks_the_negatives_alone(tmp_path):
    corpus = corpus_of(tmp_path, [[([1], [2])]], columns=["augmented"])
    corpus.require(("augmented",), "denosent")
    with pytest.raises(UserError, match=(
        r"no column 'negative_text', which .* with --augmented-column and --negative-column, "
    )):  # fmt: skip
        corpus.require(("augmented", "negative"), "supervised")


def ray_test(function):
    return pytest.mark.ray_local(pytest.mark.usefixtures("ray_here", "own_store")(function))


def expected_rows(encoder_folder, max_length):
    """What a corpus of ROWS holds by its texts, and the counts: row by row with transformers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    blank = " " if "roberta" in encoder_folder else ""
    kept, counts = {}, Counter()
    for row in map(folded, ROWS):
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


@ray_test
def test_a_corpus_holds_the_tokens_of_every_text(tmp_path, encoder_folder):
    paths = [write(tmp_path / "a.csv", ROWS[:5]), write(tmp_path / "b.jsonl", ROWS[5:])]
    options = PrepareOptions(tuple(paths), encoder_folder, 12, **TRIPLE_OPTIONS)
    prepare(options, tmp_path / "corpus")
    corpus = Corpus.open(tmp_path / "corpus")
    kept, counts = expected_rows(encoder_folder, 12)
    texts, lists = ["text", "augmented_text", "negative_text"], ["input_ids", "augmented_ids"]
    lists.append("negative_ids")
    table = rows_of(corpus.path)
    assert table.schema.names == [
        "id",
        *(n for pair in zip(texts, lists, strict=True) for n in pair),
    ]
    assert [str(t) for t in table.schema.types[1:]] == ["string", "list<element: int32>"] * 3
    rows = table.to_pylist()
    assert {tuple(r[n] for n in texts): [r[n] for n in lists] for r in rows} == kept
    assert {r["id"] for r in rows} == {row_id(*row) for row in kept}
    assert len(rows) == len(kept) == corpus.manifest["rows"]
    assert corpus.manifest["truncated"] == counts.pop("truncated") == 2
    assert corpus.manifest["dropped"] == counts
    assert corpus.manifest["rows_read"] == len(rows) + counts.total() == len(ROWS)
    assert corpus.columns == ("augmented", "negative")
    assert corpus.batch().negative[0].tolist() == rows[0]["negative_ids"]


@ray_test
def test_rows_do_not_depend_on_shards_or_the_order_of_input(tmp_path, bert_folder, monkeypatch):
    one, two = (write(tmp_path / "a.jsonl", ROWS), write(tmp_path / "b.parquet", ROWS[::-1]))
    prepare(PrepareOptions((one, two), bert_folder, **TRIPLE_OPTIONS), tmp_path / "one")
    monkeypatch.setattr(sources, "plan", partial(sources.plan, shard_bytes=30))
    monkeypatch.setattr(driver, "PART_ROWS", 1)
    prepare(PrepareOptions((two, one), bert_folder, **TRIPLE_OPTIONS), tmp_path / "two")
    first, other = Corpus.open(tmp_path / "one"), Corpus.open(tmp_path / "two")
    assert len(list(other.path.glob("data/part-*"))) > 1
    assert rows_of(first.path).sort_by("id").equals(rows_of(other.path).sort_by("id"))
    own = ("columns", "dropped", "rows", "rows_read", "tokens", "truncated")
    assert {k: first.manifest[k] for k in own} == {k: other.manifest[k] for k in own}


@ray_test
def test_sick_and_triples_by_command(tmp_path, bert_folder, sick, own_store, capsys):
    path = write(tmp_path / "a.csv", ROWS)
    command = ["prepare", "--encoder", bert_folder, "--input", path]
    assert main([*command, "--triples", "--output", "named"]) == 0
    assert "as triples" not in capsys.readouterr().err
    assert main([*command, "--output", "known"]) == 0
    assert capsys.readouterr().err.count("as triples") == 1
    named, known = Corpus.open("named"), Corpus.open("known")
    assert named.digest == known.digest
    assert named.manifest["source"]["negative_column"] == "hard_neg"
    result = json.loads((known.path / "result.json").read_text())
    run = own_store.get_run(result["mlflow_run_id"])
    assert run.data.params["augmented_column"] == "sent1"
    assert main([*command[:-1], sick, "--output", "sick"]) == 0
    manifest = Corpus.open("sick").manifest
    assert (manifest["rows_read"], manifest["rows"], manifest["dropped"]) == (
        3, 1, {"no_entailment": 2}
    )  # fmt: skip


@ray_test
def test_a_prepared_corpus_is_input_again(tmp_path, bert_folder):
    path = write(tmp_path / "a.csv", ROWS)
    prepare(PrepareOptions((path,), bert_folder, **TRIPLE_OPTIONS), tmp_path / "one")
    columns = {"augmented_column": "augmented_text", "negative_column": "negative_text"}
    prepare(PrepareOptions((str(tmp_path / "one"),), bert_folder, **columns), tmp_path / "two")
    assert rows_of(tmp_path / "two").equals(rows_of(tmp_path / "one"))


@ray_test
def test_a_strict_job_stops_at_unreadable_paired_texts_alone(tmp_path, bert_folder, sick):
    path = write(tmp_path / "a.csv", ROWS)
    options = {"on_invalid": "fail", **TRIPLE_OPTIONS}
    assert prepare(PrepareOptions((path, sick), bert_folder, **options), tmp_path / "one")["rows"]
    (tmp_path / "b.csv").write_bytes(b"sent0,sent1,hard_neg\na,caf\xe9,c\n")
    with pytest.raises(UserError, match=r"cannot be read \(1 augmented_invalid_utf8\)"):
        prepare(
            PrepareOptions((str(tmp_path / "b.csv"),), bert_folder, **options), tmp_path / "two"
        )
