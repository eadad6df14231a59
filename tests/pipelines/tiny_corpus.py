"""A prepared corpus written by hand: no Ray, and parts as small as a test wants them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.files import write_json
from pipelines.preparing.shard_tasks import row_id
from pipelines.reading.data_folder import make_data_folder, part_files
from pipelines.storage.corpus import corpus_table


def write_corpus(folder, encoder, *parts, max_length=32, **changes):
    """The texts of each part; the folder."""
    tokenizer = load_tokenizer(encoder)
    data = make_data_folder(folder)
    for number, texts in enumerate(parts):
        ids = pa.array([row_id(text) for text in texts], pa.int64())
        table = corpus_table(ids, [pa.array(texts, pa.string())], [tokenizer(texts, max_length)])
        pq.write_table(table, data / f"part-{number:06}.parquet")
    manifest = {
        "format": 1,
        "columns": [],
        "rows": sum(map(len, parts)),
        "dropped": {"empty": 3},
        "encoder": str(encoder),
        "tokenizer_hash": tokenizer.hash,
        "max_length": max_length,
        "source": {"inputs": ["a.txt"]},
        "versions": {"cotbert": "1"},
        **changes,
    }
    write_json(folder / "manifest.json", manifest)
    return folder


def rows(folder):
    """All rows of a corpus in the order of its parts."""
    return pa.concat_tables(pq.read_table(p) for p in part_files(folder))


def write_held_out(folder, queries, targets, split=None):
    """The held-out documents of a corpus, the first half of them dev; the folder."""
    split = split or ["dev" if n < len(queries) // 2 else "test" for n in range(len(queries))]
    columns = {
        "document": pa.array(range(len(queries)), pa.int64()),
        "query": pa.array(queries, pa.string()),
        "target": pa.array(targets, pa.string()),
        "split": pa.array(split, pa.string()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "held-out.parquet")
    return folder
