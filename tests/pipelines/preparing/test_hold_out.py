"""Rows that cotbert prepare holds out, against a plain reference: which, and what they ask."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import pytest
from document_reference import (
    cut_small,
    hashed,
    held_out_of,
    in_paragraphs,
    in_rows,
    pairs,
    reference,
    rows,
)
from read_inputs import write_rows

from cotbert_core.errors import UserError
from pipelines.cleaning.options import CleanOptions
from pipelines.preparing import duplicates, hold_out
from pipelines.preparing.placing import count_words
from pipelines.storage.held_out_file import has_held_out, read_held_out

pytestmark = pytest.mark.usefixtures("without_ray")


def with_splits(expected):
    """The pairs (document, query, target) with their splits, by the checksums of documents."""
    first: dict[object, str] = {}
    for document, query, _ in expected:
        first.setdefault(document, query)
    ordered = sorted(first, key=lambda document: crc32(first[document].encode()))
    dev = set(ordered[: len(ordered) - len(ordered) // 2])
    return [(*pair, "dev" if pair[0] in dev else "test") for pair in expected]


@pytest.mark.parametrize(("query", "small"), [("any", True), ("first", False)])
def test_held_out_documents_leave_wholly(query, small, made, monkeypatch):
    files, read, options = in_rows()
    if small:
        cut_small(monkeypatch)
    corpus = made(*files, hold_out=15, query=query, **options)
    stay, _ = reference(read)
    expected = held_out_of(stay, 15, query)
    assert expected != held_out_of(stay, 15, {"any": "first", "first": "any"}[query])
    assert pairs(corpus) == with_splits(expected)
    gone = {document for document, _, _ in expected}
    left = {s: place for s, place in stay.items() if place[0] not in gone}
    assert rows(corpus) == left
    manifest = corpus.manifest
    assert manifest["dropped"]["held_out"] == len(stay) - len(left) > 15
    assert manifest["held_out"] == manifest["documents"]["held_out"] == 15
    found = read_held_out(corpus.path, "test")
    assert found.targets == [target for _, _, target in expected]
    test = [pair for pair in with_splits(expected) if pair[3] == "test"]
    assert [found.targets[row] for row in found.rows] == [pair[2] for pair in test]
    assert found.queries == [pair[1] for pair in test]
    assert len(read_held_out(corpus.path, "dev")) == 8
    page = (corpus.path / "report.html").read_text()
    for words in ("Documents", "of 1 sentence", "of 3 to 5 sentences", "held out, half for dev"):
        assert words in page
    # The held-out file of a corpus is no input, and its records for MLflow are none.
    for name in ("untracked.jsonl", "untracked_refused.jsonl"):
        (corpus.path / name).write_text('{"text": "one"}\n')
    again = made(corpus.path, name="again")
    assert (len(again), again.manifest["rows_read"]) == (len(corpus), len(corpus))


def test_a_document_has_several_queries_where_few_are_held_out(made):
    files, read, options = in_rows()
    corpus = made(*files, hold_out=15, queries=40, **options)
    expected = held_out_of(reference(read)[0], 15, "any", each=3)
    found = pairs(corpus)
    assert found == with_splits(expected)
    documents = corpus.manifest["documents"]
    assert (documents["held_out"], documents["queries"]) == (15, len(found))
    assert 15 < len(found) <= 45
    queries = {query for _, query, *_ in found}
    assert not queries & set(rows(corpus))
    test = read_held_out(corpus.path, "test")
    assert (len(test), test.searched) == (sum(p[3] == "test" for p in found), 15)
    assert len(set(test.query_documents)) == 7
    first = made(*files, hold_out=15, queries=40, query="first", name="first", **options)
    assert len(pairs(first)) == 15


def test_a_title_is_the_first_sentence_of_its_document(tmp_path, made):
    rows = [(f"The title of row {n}", f"It says {n} things. Nothing else {n}.") for n in range(80)]
    path = write_rows(tmp_path / "a.csv", rows, ("title", "body"))
    options = {"documents": "row", "clean": CleanOptions(split="en"), "text_column": "title,body"}
    found = pairs(made(path, hold_out=8, query="first", **options))
    numbers = [int(query.rstrip(".").rpartition(" ")[2]) for _, query, *_ in found]
    assert [pair[1:3] for pair in found] == [
        (f"The title of row {n}.", f"It says {n} things. Nothing else {n}.") for n in numbers
    ]
    assert len(found) == 8


def test_a_tenth_is_held_out_where_that_is_fewer(made):
    files, _, options = in_rows()
    message = r"hold_out is 1,000 and .* hold out at most a tenth"
    with pytest.raises(UserError, match=message) as info:
        made(*files, hold_out=1000, name="refused", **options)
    most = int(str(info.value).rpartition("a tenth, ")[2])
    fewer = made(*files, hold_out=1000, hold_out_fewer=True, name="fewer", **options)
    assert pairs(fewer) == pairs(made(*files, hold_out=most, name="exact", **options))
    assert len(pairs(fewer)) == most > 10


def test_too_few_are_no_error_where_labels_choose(tmp_path, made, capsys):
    path = write_rows(tmp_path / "a.csv", [(f"It says {n} things.",) for n in range(50)])
    options = {"hold_out": 1000, "hold_out_fewer": True}
    with pytest.raises(UserError, match="more text, or choose by labels with --labelled FILE, or"):
        made(path, name="refused", **options)
    corpus = made(path, labelled=path, **options)
    assert (len(corpus), corpus.manifest["held_out"]) == (50, 0)
    assert not has_held_out(corpus.path)
    assert "no sentences have at least 12 words, too few to hold any out" in capsys.readouterr().err
    with pytest.raises(UserError, match="hold_out is 4 and no sentences have"):
        made(path, name="named", hold_out=4, labelled=path)


def test_input_without_a_row_of_text_is_refused_as_such(tmp_path, made):
    """Not as too few sentences to hold any out, which more text of this kind would not mend."""
    path = tmp_path / "vectors.jsonl"
    path.write_text('{"text": [0.5, -0.25, 0.125]}\n' * 50)
    with pytest.raises(UserError, match=r"nothing is left of 50 rows \(50 not_text\): give other"):
        made(path, hold_out=1000, hold_out_fewer=True)


def test_a_refusal_counts_the_sentences_of_many_documents(tmp_path, made):
    """Three versions of a document have no sentences of their own left but their first."""
    texts = [f"Version {v}-{n} is new. It says {n}. It is {n}." for n in range(20) for v in "abc"]
    path = write_rows(tmp_path / "a.csv", [(text,) for text in texts])
    options = {"documents": "row", "clean": CleanOptions(split="en")}
    with pytest.raises(
        UserError, match=r"at least 5 words \(120 sentences in 3 documents or more were"
    ):
        made(path, hold_out=5, **options)


def test_a_giant_document_is_not_held_out(made, monkeypatch):
    files, read, options = in_rows()
    cut_small(monkeypatch)
    monkeypatch.setattr(hold_out, "MOST_SENTENCES", 6)
    monkeypatch.setattr(duplicates, "CHUNK_ROWS", 7)
    stay, _ = reference(read)
    sizes = Counter(document for document, _ in stay.values())
    few = {s: place for s, place in stay.items() if sizes[place[0]] <= 6}
    expected = held_out_of(few, 9, "any")
    assert expected != held_out_of(stay, 9, "any")
    with pytest.raises(UserError, match="at least two different sentences and at most 6, one of"):
        made(*files, hold_out=len(sizes), **options)
    assert [pair[:3] for pair in pairs(made(*files, hold_out=9, **options))] == expected


def test_token_bounds_hold_before_documents_are_held_out(made):
    """A document of which one sentence is long enough is not held out."""
    files, read, options = in_paragraphs()
    corpus = made(*files, hold_out=5, clean=CleanOptions(min_tokens=8), **options)
    long = {s: place for s, place in reference(read)[0].items() if not s.startswith("It is")}
    assert len(long) < len(reference(read)[0])
    assert [pair[:3] for pair in pairs(corpus)] == held_out_of(long, 5, "any")
    assert set(rows(corpus)) < set(long)


def test_halves_of_long_sentences_are_held_out(tmp_path, made):
    lines = [f"{n} dogs saw a man who was on the road with number {n}" for n in range(200)]
    (tmp_path / "a.txt").write_text("\n".join([*lines, "a man", "Two dogs are here"]))
    corpus = made(tmp_path / "a.txt", hold_out=12)
    chosen = sorted(lines, key=hashed)[:12]
    found = pairs(corpus)
    assert [f"{query} {target}" for _, query, target, _ in found] == chosen
    assert {(d, len(q.split()), len(t.split())) for d, q, t, _ in found} == {(-1, 6, 7)}
    assert Counter(split for *_, split in found) == {"dev": 6, "test": 6}
    assert {*corpus.texts().values()} == {*lines, "a man", "Two dogs are here"} - {*chosen}
    assert corpus.manifest["dropped"] == {"held_out": 12}
    assert corpus.manifest["held_out"] == 12
    assert not corpus.has_documents


def test_few_sentences_change_sides_when_others_are_added(tmp_path, made):
    lines = [f"{n} dogs saw a man who was on the road with number {n}" for n in range(2000)]

    def splits(number):
        (tmp_path / "a.txt").write_text("\n".join(lines[:number]))
        held_out = pairs(made(tmp_path / "a.txt", name=str(number), hold_out=190))
        return {query: split for _, query, _, split in held_out}

    before, after = splits(1950), splits(2000)
    same = before.keys() & after.keys()
    new = len(after) - len(same)
    assert 0 < new < 20
    assert sum(before[query] != after[query] for query in same) <= new


@pytest.mark.parametrize(("by", "words"), [("row", "--documents none"), (None, "--dev-pairs FILE")])
def test_text_that_gives_no_queries_is_refused_with_what_else_is_possible(
    tmp_path, made, by, words
):
    (tmp_path / "a.txt").write_text("".join(f"Line {n} has a few words.\n" for n in range(60)))
    clean = CleanOptions(split="en" if by else None)
    with pytest.raises(UserError, match=f"^no .* needs 40, of which .* 4: give .*{words}"):
        made(tmp_path / "a.txt", hold_out=1000, hold_out_fewer=True, documents=by, clean=clean)


def test_words_of_scripts_without_blanks_count():
    assert [count_words(t) for t in ("a b, c", "une été", "東京は大きい", "我 am")] == [3, 2, 6, 2]
    assert hold_out.halves("東京は大きい") == ("東京は", "大きい")
    assert hold_out.halves("a b c d e") == ("a b", "c d e")


def test_rows_of_a_query_with_another_paired_text_leave_too(tmp_path, made):
    """Rows of one sentence and several paired texts are no duplicates, but give a query away."""
    rows = [(f"The man saw {n} dogs today", f"{copy} dogs", f"f{n // 4}")
            for n in range(200) for copy in range(2)]  # fmt: skip
    # In another document, so that only being a query's sentence takes it away.
    rows += [(text, f"{to} again", "other") for text, to, _ in rows[:200]]
    rows += [(f"A dog, {n}", text, "third") for n, (text, *_) in enumerate(rows[:400])]
    write_rows(tmp_path / "a.jsonl", rows, ("text", "to", "film"))
    options = {"documents": "column:film", "augmented_column": "to"}
    corpus = made(tmp_path / "a.jsonl", hold_out=3, **options)
    left = corpus.table(["text"])["text"].to_pylist()
    paired = corpus.table(["augmented_text"])["augmented_text"].to_pylist()
    assert len(left) == corpus.manifest["rows"] == 1000 - corpus.manifest["dropped"]["held_out"]
    for _, query, target, _ in pairs(corpus):
        assert query not in left
        assert query not in paired
        assert query not in target
        assert target.count("dogs") == 3
