"""Texts in documents of every kind, and which of their rows a corpus holds by a plain reference."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from read_inputs import write_rows

from pipelines.cleaning.options import CleanOptions
from pipelines.preparing import buckets, driver, duplicates
from pipelines.reading import sources
from pipelines.storage.corpus import PLACES

SPLIT = {"clean": CleanOptions(split="en")}
WORDS = ["man", "dog", "sea", "oil", "price", "guitar", "stage", "shell", "boat", "road", "bird"]


def hashed(text):
    """The first 63 bits of a text's hash, as ids have been since the first corpus."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _texts():
    """Lists of sentences: 200 documents with sentences in common, single ones, and copies."""
    draw = random.Random(0)
    common = [f"The {word} is often here today." for word in WORDS]
    made = []
    for number in range(200):
        mixed = [
            f"The {draw.choice(WORDS)} saw number {number} of {draw.randrange(40)} men."
            for _ in range(draw.choice([1, 2, 3, 4, 8]))
        ]
        mixed += draw.sample(common, draw.choice([0, 0, 1]))
        if draw.random() < 0.2:
            mixed.append(f"It is {draw.randrange(60)}.")
        draw.shuffle(mixed)
        made.append(mixed)
    return made + draw.sample(made, 40)


TEXTS = _texts()


# Each writes TEXTS to the current folder, which is the test's: the inputs, the sentences in
# their order as (document, position, sentence), and options.
def in_rows():
    write_rows(Path("texts.jsonl"), [(" ".join(sentences),) for sentences in TEXTS])
    return ["texts.jsonl"], _one_by_one(), {"documents": "row", **SPLIT}


def in_paragraphs():
    Path("texts.txt").write_text("\n\n\n".join(map("\n".join, TEXTS)))
    return ["texts.txt"], _one_by_one(), {"documents": "paragraph"}


def _one_by_one():
    return [(hashed(" ".join(text)), place, s) for text in TEXTS for place, s in enumerate(text)]


def in_files():
    Path("in").mkdir()
    read = []
    for number in range(0, len(TEXTS), 6):
        name, sentences = f"in/{number:03}.txt", list(chain(*TEXTS[number : number + 6]))
        Path(name).write_text("\n".join(sentences))
        read += [(hashed(name), place, sentence) for place, sentence in enumerate(sentences)]
    return ["in"], read, {"documents": "file"}


def in_columns():
    """Documents whose rows are far apart, in two files of different kinds."""
    tags = [(s, f"f{number % 70}") for number, sentences in enumerate(TEXTS) for s in sentences]
    random.Random(1).shuffle(tags)
    half = len(tags) // 2
    write_rows(Path("a.jsonl"), tags[:half], ("text", "film"))
    sentences, films = zip(*tags[half:], strict=True)
    pq.write_table(pa.table({"text": sentences, "film": films}), "b.parquet", row_group_size=100)
    read, place = [], Counter()
    for sentence, tag in tags:
        read.append((hashed(tag), place[tag], sentence))
        place[tag] += 1
    return ["a.jsonl", "b.parquet"], read, {"documents": "column:film"}


KINDS = {"row": in_rows, "paragraph": in_paragraphs, "file": in_files, "column": in_columns}


def reference(read):
    """{sentence: (document, position)} of the rows that stay, and the counts of the others."""
    where, stay = defaultdict(set), {}
    for document, _, sentence in read:
        where[sentence].add(document)
    many = [sentence for _, _, sentence in read if len(where[sentence]) >= 3]
    for document, place, sentence in read:
        if len(where[sentence]) < 3:
            stay.setdefault(sentence, (document, place))
    return stay, {
        "in_many_documents": len(many),
        "duplicate": len(read) - len(many) - len(stay),
    }


def held_out_of(stay, count, query, each=1):
    """[(document, query, target)] of the documents with the smallest hashes; count: documents."""
    by_document = defaultdict(list)
    for sentence, (document, place) in stay.items():
        by_document[document].append((place, sentence))
    pairs, documents = [], 0
    for document, rows in sorted(by_document.items()):
        ordered = [sentence for _, sentence in sorted(rows)]
        asks = [sentence for sentence in ordered if len(sentence.split()) >= 5]
        if len(ordered) < 2 or not asks:
            continue
        chosen = asks[:1] if query == "first" else sorted(asks, key=hashed)[:each]
        documents += 1
        if documents > count:
            continue
        for one in sorted(chosen, key=ordered.index):
            pairs.append((document, one, " ".join(s for s in ordered if s != one)))
    assert documents > 100
    return pairs


def rows(corpus):
    found = corpus.table(["text", *PLACES]).to_pylist()
    return {row["text"]: (row["document"], row["position"]) for row in found}


def pairs(corpus):
    return [tuple(r.values()) for r in pq.read_table(corpus.path / "held-out.parquet").to_pylist()]


def content(corpus):
    """Every file of the corpus but those with times."""
    kept = sorted(p for p in corpus.path.rglob("*.*") if p.suffix != ".log")
    return {p.name: p.read_bytes() for p in kept if p.name not in ("result.json", "report.html")}


def cut_small(monkeypatch):
    """Many shards, parts, chunks and buckets."""
    monkeypatch.setattr(duplicates, "CHUNK_ROWS", 101)
    monkeypatch.setattr(sources, "plan", partial(sources.plan, shard_bytes=5000))
    monkeypatch.setattr(driver, "PART_ROWS", 100)
    monkeypatch.setattr(buckets, "BUCKET_RECORDS", 100)
