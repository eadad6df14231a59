"""Inputs of a test, written in every format, read by a plan or prepared in this process."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.cli import main
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.reading.readers import read
from pipelines.reading.sources import plan
from pipelines.storage.corpus import Corpus


class Rows(NamedTuple):
    """The usable rows in their order; rows: each text with its paired texts."""

    texts: list[str]
    dropped: dict[str, int]
    ids: list[Any]
    rows: list[tuple[str, ...]]


def read_all(*inputs: object, **options: Any) -> Rows:
    """Read inputs by a plan; each row is a text or is counted under a reason."""
    made = plan([str(item) for item in inputs], **options)
    pieces = [piece for shard in made.shards for piece in read(shard, made)]
    rows = [row for p in pieces for row in zip(p.texts, *p.paired_texts, strict=True)]
    dropped = dict(sum((p.dropped for p in pieces), Counter()))
    assert sum(p.read for p in pieces) == len(rows) + sum(dropped.values())
    return Rows([row[0] for row in rows], dropped, [i for p in pieces for i in p.ids], rows)


def write_rows(path: Path, rows: list[tuple[Any, ...]], names: tuple[str, ...] = ("text",)) -> str:
    """Write rows under these column names in the format of the path's suffix; the path."""
    records = [dict(zip(names, row, strict=True)) for row in rows]
    if path.suffix == ".txt":
        path.write_text("".join(f"{row[0]}\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif path.suffix in (".jsonl", ".ndjson"):
        path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t")
            if path.suffix == ".tsv":  # a cell holds neither tabs nor line breaks
                rows = [tuple(re.sub(r"[\t\r\n]", " ", str(cell)) for cell in row) for row in rows]
            writer.writerows([names, *rows])
    return str(path)


def parquet(**columns: Any) -> bytes:
    """Return the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


def raw_text(values: list[bytes | None]) -> pa.StringArray:
    """Return a column that says it is text, whatever its bytes are."""
    return pa.array(values, pa.binary()).view(pa.string())


def prepared(output: Path, encoder: str, *inputs: object, **options: Any) -> Corpus:
    """Prepare inputs into a new folder; its corpus."""
    prepare(PrepareOptions(tuple(map(str, inputs)), encoder, **options), output)
    return Corpus.open(output)


def run_prepare(output: Path, encoder: str, *words: object) -> int:
    """Run `cotbert prepare` in this process; its exit status."""
    return main(["prepare", "--encoder", encoder, "--output", str(output), *map(str, words)])
