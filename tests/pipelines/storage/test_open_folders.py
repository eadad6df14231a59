"""Corpora are read by other tools as one table each, whatever lies beside their parts."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest
from chat_server import KEY, PROMPT, ChatServer, answer, paraphrase
from tiny_corpus import rows, write_corpus, write_held_out

from pipelines.cleaning.options import CleanOptions
from pipelines.cli import main
from pipelines.preparing import driver
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.reading import sources
from pipelines.storage.corpus import Corpus

DOCUMENTS = [
    f"The number {n} is red today. A man reads about {n} in the field. Two dogs saw number {n} go."
    for n in range(40)
]
CHOICES = {"plain": {}, "held out": {"documents": "row", "hold_out": 4}}


def found_by_all_tools(folder):
    """Return the table of FOLDER/data after checking that four tools read the same rows."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    data = str(folder / "data")
    table = pq.read_table(data)
    assert table.num_rows == len(Corpus.open(folder))
    expected = sorted(table["id"].to_pylist())
    assert sorted(pd.read_parquet(data)["id"]) == expected
    assert sorted(polars.read_parquet(data)["id"]) == expected
    found = duckdb.sql(f"select id, len(input_ids) from read_parquet('{data}')").fetchall()
    assert sorted(number for number, _ in found) == expected
    assert table.equals(rows(folder))
    return table


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize("choice", CHOICES)
def test_a_prepared_corpus(choice, tmp_path, bert_folder, monkeypatch):
    monkeypatch.setattr(driver, "PART_ROWS", 20)
    monkeypatch.setattr(driver, "UNIT_ROWS", 20)
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in DOCUMENTS))
    clean, inputs = CleanOptions(split="en"), (str(tmp_path / "a.jsonl"),)
    options = PrepareOptions(inputs, bert_folder, clean=clean, **CHOICES[choice])
    prepare(options, tmp_path / "corpus")
    assert len(list((tmp_path / "corpus" / "data").iterdir())) > 1
    assert (tmp_path / "corpus" / "held-out.parquet").exists() == (choice == "held out")
    assert (tmp_path / "corpus" / "result.json").is_file()
    table = found_by_all_tools(tmp_path / "corpus")
    assert ("document" in table.column_names) == (choice != "plain")


def test_an_augmented_corpus(tmp_path, bert_folder, unrecorded, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    corpus = write_corpus(tmp_path / "corpus", bert_folder, ["A man", "Two dogs run"], ["oil"])
    write_held_out(corpus, ["a query", "another"], ["its target", "another one"])
    (tmp_path / "prompt.txt").write_text(PROMPT)
    with ChatServer(lambda sentence, _: answer(paraphrase(sentence))) as server:
        words = ["augment", "--corpus", str(corpus), "--method", "llm", "--output", "more"]
        words += ["--base-url", server.url, "--model", "a-model", "--max-ratio", "4"]
        assert main([*words, "--prompt", str(tmp_path / "prompt.txt")]) == 0
    table = found_by_all_tools(tmp_path / "more")
    assert table["augmented_text"].to_pylist() == [
        paraphrase(text) for text in ("A man", "Two dogs run", "oil")
    ]
    assert (tmp_path / "more" / "held-out.parquet").is_file()


def test_held_out_documents_are_no_input_of_another_job(tmp_path, bert_folder):
    """The folder of a corpus and a pattern of all of its files name the parts alone."""
    corpus = write_corpus(tmp_path / "corpus", bert_folder, ["A man", "Two dogs"], ["oil"])
    write_held_out(corpus, ["a query", "another"], ["its target", "another one"])
    parts = sorted(str(path) for path in (corpus / "data").iterdir())
    for name in (corpus, corpus / "**" / "*.parquet"):
        assert sorted(sources.plan((str(name),), "text").files) == parts
