"""cotbert embed on Ray: vectors equal the encoder's own, under the right ids, in plain Parquet."""

from __future__ import annotations

import json
import re
import shlex
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folders import by_id

from cotbert_core.encoder.locations import model_digest
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.commands.printing import INTERNAL
from pipelines.embedding import job
from pipelines.embedding.embed import EmbedOptions, embed
from pipelines.reading.read_plan import FILE_BITS
from pipelines.runtime.shard_tasks import map_shards_with_actors

pytestmark = [pytest.mark.ray_local, pytest.mark.usefixtures("ray_here", "own_store")]


def assert_same(found, text_of, encoder, **options):
    """Every text has its vector, by id, and it is what `encode` gives."""
    assert set(found) == set(text_of)
    ids = sorted(text_of)
    expected = encoder.encode([text_of[i] for i in ids], precision="fp32", **options)
    given = np.stack([found[i] for i in ids])
    norms = np.linalg.norm(given, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((given * expected).sum(axis=1) / norms).min() > 0.99999
    np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-4)


@pytest.fixture
def encoder(bert_folder):
    return SentenceEncoder.from_pretrained(bert_folder)


def test_vectors_are_the_encoders_under_row_numbers(
    tmp_path, bert_folder, encoder, own_store, capsys
):
    """Bad rows are skipped and counted; the row numbers of the others do not shift."""
    (tmp_path / "a.txt").write_bytes(b"A man\n\n\xff\nTwo dogs run on the ice, and a woman\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": null}\n{"text": "Two dogs"}\n{bad\n')
    (tmp_path / "c.md").write_text("x")
    out = tmp_path / "vectors"
    command = ["embed", bert_folder, "--output", str(out), "--precision", "fp32", "--input"]
    assert main([*command, *(str(tmp_path / n) for n in ("a.txt", "b.jsonl"))]) == 0
    second = 1 << FILE_BITS
    texts = {0: "A man", 3: "Two dogs run on the ice, and a woman", second + 1: "Two dogs"}
    assert_same(by_id(out), texts, encoder)

    result, manifest = (read_json(out / name) for name in ("result.json", "manifest.json"))
    skipped = {"empty": 1, "invalid_json": 1, "invalid_utf8": 1, "null": 1}
    assert (result["rows"], result["skipped"], result["dimension"]) == (3, 4, 32)
    by_reason = {k.removeprefix("skipped_"): v for k, v in result.items() if "skipped_" in k}
    assert by_reason == manifest["skipped"] == skipped
    facts = {"rows": 3, "files": 2, "dtype": "float32", "readout": "mean", "id_column": None}
    facts["model_digest"] = model_digest(bert_folder)
    assert {key: manifest[key] for key in facts} == facts
    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.data.metrics["rows"]) == ("embed / vectors", 3)
    captured = capsys.readouterr()
    facts, ending = captured.out.split("\n\n")
    shown = [line.split()[0] for line in facts.splitlines()]
    assert shown == [name for name in result if name not in INTERNAL]
    given = shlex.join(str(tmp_path / name) for name in ("a.txt", "b.jsonl"))
    (found,) = re.findall(r"next .*cotbert (search vectors .*)", ending)
    assert found == f"search vectors 'YOUR QUERY' --text {given}"
    assert main([*shlex.split(found), "--top", "1"]) == 0
    shown = capsys.readouterr().out
    assert any(text in shown for text in texts.values())
    progress = [line.startswith("embed ") for line in captured.err.splitlines()]
    warnings = [line for line in captured.err.splitlines() if line.startswith("warning: ")]
    assert any("a.txt" in line and "not UTF-8" in line for line in warnings)
    assert sum(progress) + len(warnings) == len(progress)


def test_two_workers_give_the_same_rows_as_plain_lists(tmp_path, bert_folder, monkeypatch):
    monkeypatch.setattr(job, "SHARD_BYTES", 60)
    rows = {7 * n: f"A man and {n} dogs {'run ' * (n % 5)}" for n in range(12)}
    lines = [json.dumps({"number": n, "text": t}) for n, t in rows.items()]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"text": "without an id"}']))
    (tmp_path / "blank.jsonl").write_text("\n" * 100)  # shards without a row: no parts
    out = tmp_path / "vectors"
    inputs = (str(tmp_path / "a.jsonl"), str(tmp_path / "blank.jsonl"))
    template = "cot-bert/anchor"
    given = {"id_column": "number", "workers": 2, "template": template, "precision": "fp32"}
    result = embed(EmbedOptions(bert_folder, inputs, **given), out)
    assert (result["rows"], result["skipped_bad_id"], result["skipped_empty"]) == (12, 1, 100)
    assert_same(by_id(out), rows, SentenceEncoder.from_pretrained(bert_folder, template))
    parts = sorted(out.glob("data/part-*"))
    assert len(parts) > 3
    schema = pa.schema({"id": pa.int64(), "embedding": pa.list_(pa.float32(), 32)})
    assert {part.suffix for part in parts} == {".parquet"}
    assert all(pq.read_schema(part) == schema for part in parts)


def test_an_actor_may_work_on_several_shards_at_a_time():
    class Meeting:  # in here, so that it travels to the worker by value
        """Each call waits for two others."""

        def __init__(self):
            self.barrier = threading.Barrier(3)

        def __call__(self, row):
            self.barrier.wait(timeout=60)
            return row

    rows = map_shards_with_actors(Meeting, {}, 6, 1, {"num_cpus": 1.0}, calls=3)
    assert sorted(row["id"] for row in rows) == [*range(6)]
