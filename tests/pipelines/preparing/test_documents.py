"""Documents in cotbert prepare against a plain reference: which rows stay, and where."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
from document_reference import (
    KINDS,
    SPLIT,
    content,
    cut_small,
    hashed,
    in_paragraphs,
    pairs,
    reference,
    rows,
)
from read_inputs import write_rows

from cotbert_core.errors import UserError
from pipelines.preparing import document_rows, driver
from pipelines.preparing.duplicates import sample_order
from pipelines.reading import documents
from pipelines.storage.corpus import PLACES
from pipelines.storage.held_out_file import read_held_out

pytestmark = pytest.mark.usefixtures("without_ray")


@pytest.mark.parametrize(("kind", "small"), [("row", False), *((kind, True) for kind in KINDS)])
def test_rows_stay_as_in_the_reference(kind, small, made, monkeypatch):
    files, read, options = KINDS[kind]()
    if small:
        cut_small(monkeypatch)
    corpus = made(*files, **options)
    stay, dropped = reference(read)
    assert rows(corpus) == stay
    manifest = corpus.manifest
    assert dropped.items() <= manifest["dropped"].items()
    assert dropped["in_many_documents"] > 50
    sizes = Counter(document for document, _ in stay.values())
    assert corpus.has_documents
    assert manifest["documents"] == {
        "by": options["documents"],
        "documents": len(sizes),
        "one_sentence": list(sizes.values()).count(1),
        "held_out": 0,
    }
    assert manifest["rows_read"] + manifest["added"] == len(stay) + sum(
        manifest["dropped"].values()
    )
    schema = pq.read_schema(corpus.parts()[0])
    assert [schema.field(name).type for name in PLACES] == ["int64", "int32"]
    assert not any(schema.field(name).nullable for name in PLACES)
    assert (len(corpus.parts()) > 2) == small


def test_a_line_of_every_document_fills_no_bucket(tmp_path, made, monkeypatch):
    lines = [f"It was here.\n{n} dogs\n{n} men" for n in range(300)]
    (tmp_path / "a.txt").write_text("\n\n".join(lines))
    found = []
    plain = document_rows._first_rows
    monkeypatch.setattr(
        document_rows, "_first_rows", lambda records: found.append(records) or plain(records)
    )
    corpus = made(tmp_path / "a.txt", documents="paragraph")
    assert corpus.manifest["dropped"]["in_many_documents"] == 300
    assert sum(map(len, found)) == 603


def test_a_sample_takes_whole_documents(made, monkeypatch):
    files, read, options = in_paragraphs()
    stay, _ = reference(read)
    sizes, held, total = Counter(document for document, _ in stay.values()), set(), 0
    documents = np.array(list(sizes))
    for document in documents[np.argsort(sample_order(documents))].tolist():
        if total < 150:
            held.add(document)
            total += sizes[document]
    expected = {sentence: place for sentence, place in stay.items() if place[0] in held}
    corpus = made(*files, sample=150, **options)
    assert rows(corpus) == expected
    assert corpus.manifest["sampled_out"] == len(stay) - total
    cut_small(monkeypatch)
    assert rows(made(*files, name="small", sample=150, **options)) == expected


@pytest.mark.parametrize("kind", ["file", "column"])
def test_the_bytes_do_not_depend_on_workers_or_the_order_of_files(kind, made, monkeypatch):
    files, _, options = KINDS[kind]()
    cut_small(monkeypatch)
    first = content(made(*files, hold_out=3, **options))
    in_turn = driver.map_shards
    monkeypatch.setattr(driver, "map_shards", lambda *a: reversed(list(in_turn(*a))))
    again = made(*files[::-1], files[0], name="again", hold_out=3, **options)
    assert content(again) == first
    assert len(first) > 4


def test_the_sentences_of_a_docstring_are_a_document(made):
    corpus = made("docstrings:yaml,email", documents="row", hold_out=4)
    plain = made("docstrings:yaml,email", name="plain")
    assert set(rows(corpus)) < set(plain.texts().values())
    assert corpus.manifest["documents"]["documents"] > 50
    assert len(pairs(corpus)) == 4
    assert corpus.manifest["rows_read"] == plain.manifest["rows_read"]
    assert not plain.has_documents
    with pytest.raises(UserError, match="has no held-out documents: prepare it with --hold-out"):
        read_held_out(plain.path, "dev")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": "row"}, "texts are not split into sentences: name their language with --s"),
        ({"documents": "paragraph"}, "is jsonl: only txt, md and rst files have paragraphs"),
        ({"documents": "file"}, "the input is the single file .*: give more files .with --limit"),
        ({"documents": "column:no"}, "has no column 'no': it has film, text; name one with"),
        ({"documents": "column:film", **SPLIT, "augmented_column": "film"}, "paired texts"),
        (
            {"documents": "row", **SPLIT, "hold_out": 3},
            "hold_out is 3 and only 29 documents have at least two different sentences and at most "
            "10,000, one of them with at least 5 words: give more text",
        ),
        ({"documents": "column:text"}, "each of the 29 documents is a single sentence: name oth"),
        (
            {"hold_out": 3},
            "hold_out is 3 and only 29 sentences have at least 12 words: give more text",
        ),
        ({"documents": "page"}, "documents is 'page': give row, file, paragraph or column:NAME"),
        ({"documents": "column:"}, "documents is 'column:': give row"),
        ({"hold_out": 1}, "hold_out is 1: give at least 2"),
        ({"hold_out": 4, "query": "first"}, "no held-out documents: give --documents too"),
        ({"query": "first"}, "no held-out documents: give --documents and --hold-out too"),
    ],
)
def test_what_gives_no_documents_is_refused(options, message, tmp_path, made):
    text = "The man number {0} saw a dog on the road. It was number {0} of many."
    rows = [(text.format(n), f"f{n % 9}") for n in range(29)]
    write_rows(tmp_path / "a.jsonl", rows, ("text", "film"))
    with pytest.raises(UserError, match=message):
        made(tmp_path / "a.jsonl", **options)
    assert not (tmp_path / "corpus").exists()


def test_rows_without_a_value_are_counted(tmp_path, made):
    rows = [{"text": f"{n} dogs", "film": n % 3 if n < 20 else n % 3 + 0.0} for n in range(30)]
    rows += [{"text": "a man", "film": v} for v in (None, " ", float("nan"))] + [{"text": "sea"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = made(tmp_path / "a.jsonl", documents="column:film")
    assert corpus.manifest["dropped"] == {"no_document": 4}
    found = set(corpus.table(["document"])["document"].to_pylist())
    assert found == {hashed(str(n)) for n in range(3)}


def test_the_same_document_a_thousand_times_is_one(tmp_path, made):
    text = "The man saw a dog. It was on the road. He said so."
    other = "A bird is in the sea. The moon is up."
    write_rows(tmp_path / "a.jsonl", [(text,)] * 1000 + [(other,)])
    corpus = made(tmp_path / "a.jsonl", documents="row", **SPLIT)
    assert corpus.manifest["dropped"] == {"duplicate": 2997}
    assert corpus.manifest["documents"]["documents"] == 2
    assert sorted(place for _, place in rows(corpus).values()) == [0, 0, 1, 1, 2]


def test_a_sample_of_boilerplate_alone_is_refused(tmp_path, made):
    (tmp_path / "a.txt").write_text("Men\nDogs\n\nMen\nSea\n\nDogs\nSea\n\nMen\nDogs\nSea\n")
    with pytest.raises(UserError, match="nothing is left of 12 rows"):
        made(tmp_path / "a.txt", documents="paragraph", sample=5)


def test_a_giant_document_gets_a_warning(tmp_path, made):
    lines = [f"{n} dogs" for n in range(100)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\nTwo men\nOne man")
    corpus = made(tmp_path / "a.txt", documents="paragraph")
    assert corpus.manifest["warnings"] == [
        "one document has 100 of 102 sentences: check the value of --documents, since pairs within "
        "one document teach little about the others"
    ]


def test_many_sentences_of_copied_documents_get_a_warning(tmp_path, made):
    """Pages in three versions: what they share is dropped, so that a document is one sentence."""
    for version in ("v1", "v2", "v3"):
        (tmp_path / version).mkdir()
        for page in range(4):
            news = f"This is new in {version} of {page}." if page else "Men\nDogs"
            (tmp_path / version / f"{page}.txt").write_text(f"Page {page} is here.\n{news}\n")
    message = r"each of the 9 documents is a single sentence: .* \(18 of 27 sentences occur in 3"
    with pytest.raises(UserError, match=message):
        made(tmp_path, documents="file")
    (tmp_path / "v1" / "4.txt").write_text("Two dogs run.\nA man is here.\n")
    assert made(tmp_path, documents="file").manifest["warnings"] == [
        "18 of 29 sentences occur in 3 documents or more and were all dropped: if the input holds "
        "copies or versions of documents, give one of each"
    ]


def test_a_long_paragraph_is_known_by_its_beginning(monkeypatch):
    """So that a file without blank lines takes no memory."""
    monkeypatch.setattr(documents, "MOST_HASHED", 10)
    held = []

    def lines():
        for number in range(6):
            held.append(number)
            yield b"12345" if number < 5 else b""

    found = [(*row, len(held)) for row in documents.paragraphs(lines())]
    assert [line for line, *_ in found] == [b"12345"] * 5 + [b""]
    assert {tag[0] for _, tag, _ in found[:5]} == {documents.document_id(b"12345 12345")}
    assert [count for *_, count in found] == [2, 2, 3, 4, 5, 6]
