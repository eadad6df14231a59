"""Documents in cotbert prepare against a plain reference: which rows stay, and where."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.errors import UserError
from pipelines import prepare as prepare_job
from pipelines.cleaning.options import CleanOptions
from pipelines.prepare import prepare
from pipelines.preparing import buckets, document_rows, driver, duplicates, hold_out
from pipelines.preparing.options import PrepareOptions
from pipelines.reading import documents, sources
from pipelines.storage.corpus import PLACES, Corpus
from pipelines.storage.held_out_file import read_held_out

pytestmark = pytest.mark.usefixtures("without_ray")

SPLIT = {"clean": CleanOptions(split="en")}
WORDS = ["man", "dog", "sea", "oil", "price", "guitar", "stage", "shell", "boat", "road", "bird"]


def hashed(text):
    """The first 63 bits of a text's hash, as ids have been since the first corpus."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@pytest.fixture
def texts():
    """Lists of sentences: 200 documents with sentences in common, single ones, and copies."""
    draw = random.Random(0)
    common = [f"The {word} is often here today." for word in WORDS]
    made = []
    for number in range(200):
        size = draw.choice([1, 2, 3, 4, 8])
        own = [
            f"The {draw.choice(WORDS)} saw number {number} of {draw.randrange(40)} men."
            for _ in range(size)
        ]
        shared = draw.sample(common, draw.choice([0, 0, 1]))
        if draw.random() < 0.2:
            shared.append(f"It is {draw.randrange(60)}.")
        mixed = [*own, *shared]
        draw.shuffle(mixed)
        made.append(mixed)
    return made + draw.sample(made, 40)


def reference(read, sample=None):
    """{sentence: (document, position)} of the rows that stay, and the counts of the others.

    read: (document, sentences) in the order of the input.
    """
    where, count = defaultdict(set), 0
    for document, sentences in read:
        for sentence in sentences:
            where[sentence].add(document)
            count += 1
    many = {sentence for sentence, found in where.items() if len(found) >= 3}
    stay, dropped = {}, 0
    for document, sentences in read:
        for place, sentence in enumerate(sentences):
            if sentence in many:
                dropped += 1
            elif sentence not in stay:
                stay[sentence] = document, place
    counts = {"in_many_documents": dropped, "duplicate": count - dropped - len(stay)}
    if sample:
        sizes = defaultdict(int)
        for document, _ in stay.values():
            sizes[document] += 1
        held, total = set(), 0
        for document in sorted(sizes):
            if total >= sample:
                break
            held.add(document)
            total += sizes[document]
        stay = {k: v for k, v in stay.items() if v[0] in held}
    return stay, {k: n for k, n in counts.items() if n}


def held_out_of(stay, count, query):
    """[(document, query, target)] of the documents with the smallest hashes."""
    by_document = defaultdict(list)
    for sentence, (document, place) in stay.items():
        by_document[document].append((place, sentence))
    pairs = []
    for document, rows in sorted(by_document.items()):
        ordered = [sentence for _, sentence in sorted(rows)]
        asks = [sentence for sentence in ordered if len(sentence.split()) >= 5]
        if len(ordered) < 2 or not asks:
            continue
        one = asks[0] if query == "first" else min(asks, key=hashed)
        pairs.append((document, one, " ".join(s for s in ordered if s != one)))
    return pairs[:count], len(pairs)


@pytest.fixture
def made(tmp_path, bert_folder):
    """Prepare inputs into a new folder; its corpus."""

    def make(*inputs, name="corpus", **options):
        out = tmp_path / name
        prepare(PrepareOptions(tuple(map(str, inputs)), bert_folder, **options), out)
        return Corpus.open(out)

    return make


def rows(corpus):
    found = pa.concat_tables(pq.read_table(p) for p in sorted(corpus.path.glob("data/part-*")))
    return {r["text"]: (r["document"], r["position"]) for r in found.to_pylist()}


def pairs(corpus):
    return [tuple(r.values()) for r in pq.read_table(corpus.path / "held-out.parquet").to_pylist()]


def content(corpus):
    """Every file of the corpus but those with times."""
    kept = sorted(p for p in corpus.path.rglob("*.*") if p.suffix != ".log")
    return {p.name: p.read_bytes() for p in kept if p.name not in ("result.json", "report.html")}


def cut_small(monkeypatch):
    """Many shards, parts, chunks and buckets."""
    monkeypatch.setattr(duplicates, "CHUNK_ROWS", 101)
    monkeypatch.setattr(buckets, "CHUNK_ROWS", 101)
    monkeypatch.setattr(sources, "plan", partial(sources.plan, shard_bytes=1500))
    monkeypatch.setattr(driver, "PART_ROWS", 40)
    monkeypatch.setattr(buckets, "BUCKET_RECORDS", 50)


def in_rows(home, texts):
    file = home / "texts.jsonl"
    lines = [json.dumps({"text": " ".join(sentences)}) for sentences in texts]
    file.write_text("\n".join(lines))
    read = [(hashed(" ".join(sentences)), sentences) for sentences in texts]
    return [file], read, {"documents": "row", **SPLIT}


def in_paragraphs(home, texts):
    file = home / "texts.txt"
    file.write_text("\n\n\n".join("\n".join(sentences) for sentences in texts))
    read = [(hashed(" ".join(sentences)), sentences) for sentences in texts]
    return [file], read, {"documents": "paragraph"}


def in_files(home, texts):
    (home / "in").mkdir()
    read = []
    for number, sentences in enumerate(texts[::4]):
        sentences = [s for some in texts[4 * number : 4 * number + 4] for s in some]
        (home / "in" / f"{number:03}.txt").write_text("\n".join(sentences))
        read.append((hashed(f"in/{number:03}.txt"), sentences))
    return ["in"], read, {"documents": "file"}


def in_columns(home, texts):
    """Documents whose rows are far apart, in two files of different kinds."""
    tags = [(number % 70, s) for number, sentences in enumerate(texts) for s in sentences]
    random.Random(1).shuffle(tags)
    half = len(tags) // 2
    lines = [json.dumps({"text": s, "film": f"f{tag}"}) for tag, s in tags[:half]]
    (home / "a.jsonl").write_text("\n".join(lines))
    table = pa.table({
        "text": [s for _, s in tags[half:]],
        "film": [f"f{tag}" for tag, _ in tags[half:]],
    })  # fmt: skip
    pq.write_table(table, home / "b.parquet", row_group_size=100)
    by_tag = defaultdict(list)
    for tag, sentence in tags:
        by_tag[tag].append(sentence)
    return [home / "a.jsonl", home / "b.parquet"], (tags, by_tag), {"documents": "column:film"}


def read_in_order(read):
    """The reference of documents whose rows are far apart, in the order of the rows."""
    tags, by_tag = read
    where = defaultdict(set)
    for tag, sentence in tags:
        where[sentence].add(tag)
    many = {sentence for sentence, found in where.items() if len(found) >= 3}
    stay, place = {}, defaultdict(int)
    for tag, sentence in tags:
        if sentence not in many:
            stay.setdefault(sentence, (hashed(f"f{tag}"), place[tag]))
        place[tag] += 1
    assert sum(place.values()) == sum(map(len, by_tag.values()))
    return stay


KINDS = {"row": in_rows, "paragraph": in_paragraphs, "file": in_files, "column": in_columns}


@pytest.mark.parametrize(("kind", "small"), [("row", False), *((kind, True) for kind in KINDS)])
def test_rows_stay_as_in_the_reference(kind, small, texts, tmp_path, made, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, read, options = KINDS[kind](tmp_path, texts)
    if small:
        cut_small(monkeypatch)
    corpus = made(*files, **options)
    dropped = corpus.manifest["dropped"]
    if kind == "column":
        stay = read_in_order(read)
    else:
        stay, counts = reference(read)
        assert {k: dropped[k] for k in counts} == counts
        assert counts["in_many_documents"] > 50
    assert rows(corpus) == stay
    sizes = np.unique([document for document, _ in stay.values()], return_counts=True)[1]
    assert corpus.has_documents
    assert corpus.manifest["documents"] == {
        "by": options["documents"],
        "documents": len(sizes),
        "one_sentence": int((sizes == 1).sum()),
        "held_out": 0,
    }
    manifest = corpus.manifest
    assert manifest["rows_read"] + manifest["added"] == len(stay) + sum(dropped.values())
    if small:
        assert len(list(corpus.path.glob("data/part-*"))) > 2


@pytest.mark.parametrize(("query", "small"), [("any", True), ("first", False)])
def test_held_out_documents_leave_wholly(query, small, texts, tmp_path, made, monkeypatch):
    files, read, options = in_rows(tmp_path, texts)
    if small:
        cut_small(monkeypatch)
    corpus = made(*files, hold_out=15, query=query, **options)
    stay, _ = reference(read)
    expected, possible = held_out_of(stay, 15, query)
    assert possible > 100
    assert pairs(corpus) == [
        (*pair, ("dev", "test")[number % 2]) for number, pair in enumerate(expected)
    ]
    gone = {document for document, _, _ in expected}
    left = {s: place for s, place in stay.items() if place[0] not in gone}
    assert rows(corpus) == left
    manifest = corpus.manifest
    assert manifest["dropped"]["held_out"] == len(stay) - len(left) > 15
    assert manifest["held_out"] == manifest["documents"]["held_out"] == 15
    found = read_held_out(corpus.path, "test")
    assert found.targets == [target for _, _, target in expected]
    assert [found.targets[row] for row in found.rows] == [p[2] for p in expected[1::2]]
    assert found.queries == [p[1] for p in expected[1::2]]
    assert len(read_held_out(corpus.path, "dev")) == 8


def test_a_tenth_is_held_out_where_that_is_fewer(texts, tmp_path, made):
    files, _, options = in_rows(tmp_path, texts)
    with pytest.raises(
        UserError, match=r"hold_out is 1,000 and .* hold out at most a tenth"
    ) as info:
        made(*files, hold_out=1000, name="refused", **options)
    most = int(str(info.value).rpartition("a tenth, ")[2])
    fewer = made(*files, hold_out=1000, hold_out_fewer=True, name="fewer", **options)
    exact = made(*files, hold_out=most, name="exact", **options)
    assert pairs(fewer) == pairs(exact)
    assert len(pairs(fewer)) == most > 10


def test_a_giant_document_is_not_held_out(texts, tmp_path, made, monkeypatch):
    files, read, options = in_rows(tmp_path, texts)
    monkeypatch.setattr(hold_out, "MOST_SENTENCES", 6)
    cut_small(monkeypatch)
    monkeypatch.setattr(buckets, "CHUNK_ROWS", 7)
    monkeypatch.setattr(duplicates, "CHUNK_ROWS", 7)
    stay, _ = reference(read)
    sizes = Counter(document for document, _ in stay.values())
    few = {s: place for s, place in stay.items() if sizes[place[0]] <= 6}
    expected, _ = held_out_of(few, 9, "any")
    assert expected != held_out_of(stay, 9, "any")[0]
    assert [pair[:3] for pair in pairs(made(*files, hold_out=9, **options))] == expected


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


def test_the_two_queries_differ(texts, tmp_path):
    _, read, _ = in_rows(tmp_path, texts)
    stay, _ = reference(read)
    assert held_out_of(stay, 15, "any") != held_out_of(stay, 15, "first")


def test_a_sample_takes_whole_documents(texts, tmp_path, made, monkeypatch):
    files, read, options = in_paragraphs(tmp_path, texts)
    stay, _ = reference(read, sample=150)
    corpus = made(*files, sample=150, **options)
    assert rows(corpus) == stay
    assert 150 <= len(stay) < 160
    assert corpus.manifest["sampled_out"] == len(reference(read)[0]) - len(stay)
    cut_small(monkeypatch)
    assert rows(made(*files, name="small", sample=150, **options)) == stay


@pytest.mark.parametrize("kind", ["file", "column"])
def test_the_bytes_do_not_depend_on_workers_or_the_order_of_files(
    kind, texts, tmp_path, made, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    files, _, options = KINDS[kind](tmp_path, texts)
    options |= {"hold_out": 3}
    cut_small(monkeypatch)
    first = content(made(*files, **options))
    in_turn = driver.map_shards
    monkeypatch.setattr(driver, "map_shards", lambda *a: reversed(list(in_turn(*a))))
    assert content(made(*files[::-1], files[0], name="again", **options)) == first
    assert len(first) > 4


def test_a_killed_job_gives_the_same_bytes(texts, tmp_path, made, monkeypatch):
    files, _, options = in_columns(tmp_path, texts)
    options |= {"hold_out": 3}
    cut_small(monkeypatch)
    first = content(made(*files, **options))
    in_turn, seen = driver.map_shards, Counter()

    def killed(task, count):
        """Each pass ends after its first and its second task."""
        name = type(task).__name__
        for row in in_turn(task, count):
            yield row
            seen[name] += 1
            if seen[name] <= 2:
                raise KeyboardInterrupt

    def stop(*_):
        raise KeyboardInterrupt

    for _ in range(4):
        monkeypatch.setattr(driver, "map_shards", killed)
        with pytest.raises(KeyboardInterrupt):
            made(*files, name="killed", **options)
    with monkeypatch.context() as patch:
        patch.setattr(prepare_job, "finish_documents", stop)
        with pytest.raises(KeyboardInterrupt):
            made(*files, name="killed", **options)
    assert set(seen) == {"ReadShard", "WritePart"}
    assert content(made(*files, name="killed", **options)) == first


def test_token_bounds_hold_before_documents_are_held_out(texts, tmp_path, made):
    """A document of which one sentence is long enough is not held out."""
    files, read, options = in_paragraphs(tmp_path, texts)
    options["clean"] = CleanOptions(min_tokens=8)
    corpus = made(*files, hold_out=5, **options)
    short = {s for _, sentences in read for s in sentences if s.startswith("It is")}
    assert short
    stay, _ = reference(read)
    long = {s: place for s, place in stay.items() if s not in short}
    expected, _ = held_out_of(long, 5, "any")
    assert [pair[:3] for pair in pairs(corpus)] == expected
    assert not short & set(rows(corpus))


def test_the_sentences_of_a_docstring_are_a_document(made):
    corpus = made("docstrings:yaml,json,email", documents="row", hold_out=10)
    plain = made("docstrings:yaml,json,email", name="plain")
    texts = set(pq.read_table(plain.path / "data" / "part-000000.parquet")["text"].to_pylist())
    assert set(rows(corpus)) < texts
    assert corpus.manifest["documents"]["documents"] > 100
    assert len(pairs(corpus)) == 10
    assert corpus.manifest["rows_read"] == plain.manifest["rows_read"]
    assert not plain.has_documents
    with pytest.raises(UserError, match="has no held-out documents: prepare it with --hold-out"):
        read_held_out(plain.path, "dev")


def test_documents_and_positions_are_never_null(texts, tmp_path, made, monkeypatch):
    cut_small(monkeypatch)
    files, _, options = in_paragraphs(tmp_path, texts)
    corpus = made(*files, **options)
    schema = pq.read_schema(corpus.path / "data" / "part-000000.parquet")
    assert [schema.field(name).type for name in PLACES] == ["int64", "int32"]
    assert not any(schema.field(name).nullable for name in PLACES)


def test_halves_of_long_sentences_are_held_out(tmp_path, made):
    lines = [f"{n} dogs saw a man who was on the road with number {n}" for n in range(200)]
    (tmp_path / "a.txt").write_text("\n".join([*lines, "a man", "Two dogs are here"]))
    corpus = made(tmp_path / "a.txt", hold_out=12)
    chosen = sorted(lines, key=hashed)[:12]
    found = pairs(corpus)
    assert [f"{query} {target}" for _, query, target, _ in found] == chosen
    assert {(d, len(q.split()), len(t.split())) for d, q, t, _ in found} == {(-1, 6, 7)}
    assert [split for *_, split in found] == ["dev", "test"] * 6
    left = set(pq.read_table(corpus.path / "data" / "part-000000.parquet")["text"].to_pylist())
    assert left == {*lines, "a man", "Two dogs are here"} - set(chosen)
    assert corpus.manifest["dropped"] == {"held_out": 12}
    assert (corpus.manifest["held_out"], "documents" in corpus.manifest) == (12, False)
    assert not corpus.has_documents


def test_words_of_scripts_without_blanks_count():
    from pipelines.preparing.hold_out import halves
    from pipelines.preparing.placing import count_words

    assert [count_words(t) for t in ("a b, c", "une été", "東京は大きい", "我 am")] == [3, 2, 6, 2]
    assert halves("東京は大きい") == ("東京は", "大きい")
    assert halves("a b c d e") == ("a b", "c d e")


def test_rows_of_a_query_with_another_paired_text_leave_too(tmp_path, made):
    """Rows of one sentence and several paired texts are no duplicates, but give a query away."""
    rows = [
        {"text": f"The man saw {n} dogs today", "to": f"{copy} dogs", "film": f"f{n // 4}"}
        for n in range(200)
        for copy in range(2)
    ]
    rows += [{**row, "film": "other"} for row in rows[:200]]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {"documents": "column:film", "augmented_column": "to"}
    corpus = made(tmp_path / "a.jsonl", hold_out=3, **options)
    found = pairs(corpus)
    left = pq.read_table(corpus.path / "data" / "part-000000.parquet")["text"].to_pylist()
    assert len(left) == corpus.manifest["rows"] == 400 - corpus.manifest["dropped"]["held_out"]
    for _, query, target, _ in found:
        assert query not in left
        assert query not in target
        assert target.count("dogs") == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": "row"}, "texts are not split into sentences: name their language with --s"),
        ({"documents": "paragraph"}, "the input is jsonl: only txt files have paragraphs"),
        ({"documents": "file"}, "the input is the single file .*: give more files, or"),
        ({"documents": "column:no"}, "has no column 'no': it has film, text; name one with"),
        ({"documents": "column:film", **SPLIT, "augmented_column": "film"}, "paired texts"),
        (
            {"documents": "row", **SPLIT, "hold_out": 3},
            "hold_out is 3 and 29 documents have two different sentences or more, .*: hold out at "
            "most a tenth, 2",
        ),
        ({"documents": "column:text"}, "each of the 29 documents is a single sentence: name oth"),
        ({"hold_out": 3}, "hold_out is 3 and 29 sentences have 12 words or more: .* tenth, 2"),
    ],
)
def test_what_gives_no_documents_is_refused(options, message, tmp_path, made):
    text = "The man number {} saw a dog on the road. It was number {} of many."
    lines = [json.dumps({"text": text.format(n, n), "film": f"f{n % 9}"}) for n in range(29)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match=message):
        made(tmp_path / "a.jsonl", **options)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": "page"}, "documents is 'page': give row, file, paragraph or column:NAME"),
        ({"documents": "column:"}, "documents is 'column:': give row"),
        ({"hold_out": 1}, "hold_out is 1: give at least 2"),
        ({"hold_out": 4, "query": "first"}, "query is 'first' and there are no held-out docu"),
        ({"hold_out": 4, "query": "last"}, "query is 'last'|unknown query 'last'"),
    ],
)
def test_a_bad_option_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        PrepareOptions(("a.txt",), "encoder", **options)


def test_rows_without_a_value_are_counted(tmp_path, made):
    rows = [{"text": f"{n} dogs", "film": n % 3} for n in range(30)]
    rows += [{"text": "a man", "film": v} for v in (None, " ", float("nan"))] + [{"text": "sea"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = made(tmp_path / "a.jsonl", documents="column:film")
    assert corpus.manifest["dropped"] == {"no_document": 4}
    assert set(corpus.table(list(PLACES))[PLACES[0]].to_pylist()) == {
        hashed(str(n)) for n in range(3)
    }


def test_the_same_document_a_thousand_times_is_one(tmp_path, made):
    text = "The man saw a dog. It was on the road. He said so."
    other = "A bird is in the sea. The moon is up."
    lines = [json.dumps({"text": text})] * 1000 + [json.dumps({"text": other})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    corpus = made(tmp_path / "a.jsonl", documents="row", **SPLIT)
    assert corpus.manifest["dropped"] == {"duplicate": 2997}
    assert corpus.manifest["documents"]["documents"] == 2
    assert sorted(place for _, place in rows(corpus).values()) == [0, 0, 1, 1, 2]


def test_a_giant_document_gets_a_warning(tmp_path, made):
    lines = [f"{n} dogs" for n in range(100)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\nTwo men\nOne man")
    corpus = made(tmp_path / "a.txt", documents="paragraph")
    assert corpus.manifest["warnings"] == [
        "one document has 100 of 102 sentences: check the value of --documents, since pairs within "
        "one document teach little about the others"
    ]


def test_a_long_paragraph_is_known_by_its_beginning(monkeypatch):
    """So that a file without blank lines takes no memory."""
    monkeypatch.setattr(documents, "MOST_HASHED", 10)
    held = []

    def lines():
        for number in range(6):
            held.append(number)
            yield b"12345" if number < 5 else b""

    found = []
    for line, (document, copy) in documents.paragraphs(lines()):
        found.append((line, document, copy, len(held)))
    assert [f[0] for f in found] == [b"12345"] * 5 + [b""]
    assert {f[1] for f in found[:5]} == {documents.document_id(b"12345 12345")}
    assert [f[3] for f in found] == [2, 2, 3, 4, 5, 6]


def test_the_held_out_file_of_a_corpus_is_no_input(texts, tmp_path, made):
    files, _, options = in_paragraphs(tmp_path, texts)
    first = made(*files, hold_out=4, **options)
    again = made(first.path, name="again")
    assert len(again) == len(first)
    assert again.manifest["source"]["files"] == 1


def test_the_report_counts_documents(texts, tmp_path, made):
    files, _, options = in_paragraphs(tmp_path, texts)
    page = (made(*files, hold_out=4, **options).path / "report.html").read_text()
    for words in ("Documents", "of 1 sentence", "of 3 to 5 sentences", "held out, half for dev"):
        assert words in page
