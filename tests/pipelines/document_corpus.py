"""A corpus with documents written by hand, and its positives from plain lists."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from tiny_corpus import write_corpus

from pipelines.reading.data_folder import part_files

WORDS = ("a man", "two dogs", "the children", "she", "nobody", "the penguin", "a woman", "oil")


def document_texts(documents, longest):
    """Return one text for each (document, position): all differ, and so do their lengths."""
    ends = ("sings", "walks on the ice", "saw the answer and the guitar", "is in the field .")
    return [f"{WORDS[(d + p) % 8]} {ends[(d * longest + p) % 4]} {d} {p}" for d, p in documents]


def write_document_corpus(folder, encoder, *parts, max_length=32):
    """Write a corpus; parts: lists of (document, position)."""
    texts = [document_texts(part, 7) for part in parts]
    numbers = [d for part in parts for d, _ in part]
    sizes = [numbers.count(d) for d in set(numbers)]
    stated = {"by": "row", "documents": len(sizes), "one_sentence": sizes.count(1), "held_out": 0}
    write_corpus(folder, encoder, *texts, max_length=max_length, documents=stated)
    for path, part in zip(part_files(folder), parts, strict=True):
        table = pq.read_table(path)
        documents, positions = zip(*part, strict=True)
        table = table.append_column("document", pa.array(documents, pa.int64()))
        pq.write_table(table.append_column("position", pa.array(positions, pa.int32())), path)
    return folder


def rows_of(folder):
    """Return the rows of all parts as dicts, each with the number of its part."""
    paths = part_files(folder)
    return [
        {**row, "part": number}
        for number, path in enumerate(paths)
        for row in pq.read_table(path).to_pylist()
    ]


def same_document(rows, row, *, in_part=False):
    """Return the other rows of a row's document by position."""
    found = [
        other
        for other in rows
        if other["document"] == row["document"]
        and other is not row
        and (not in_part or other["part"] == row["part"])
    ]
    return sorted(found, key=lambda other: other["position"])
