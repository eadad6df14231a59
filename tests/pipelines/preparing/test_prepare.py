"""cotbert prepare on Ray: where every row goes, what a corpus holds, and what is never left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_inputs import prepared, raw_text, run_prepare
from tiny_corpus import rows

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.errors import UserError
from pipelines.commands.printing import INTERNAL
from pipelines.storage.corpus import Corpus

pytestmark = [pytest.mark.ray_local, pytest.mark.usefixtures("ray_here", "own_store")]

LONG = "the man saw a dog . " * 5000
KEPT = {
    "a.txt": ["A man is playing the guitar.", LONG.strip(), "[MASK] is a man [SEP] [X]"],
    "b.csv": ["Two dogs, and a man", "oil"],
    "c.tsv": ["What do you want?"],
    "d.jsonl": ["The price of oil rose", "a line break"],
    "deep/e.ndjson": ["Penguin"],
    "deep/f.parquet": ["She sells sea shells", "the stage"],
}
DROPPED = {
    "duplicate": 4,
    "empty": 5,
    "invalid_json": 2,
    "invalid_utf8": 4,
    "no_text_column": 1,
    "no_tokens": 1,
    "not_text": 1,
    "null": 3,
}


@pytest.fixture
def folder(tmp_path):
    """One file of each format, with rows of every bad kind, duplicates across files, and KEPT."""
    home = tmp_path / "input"
    (home / "deep").mkdir(parents=True)
    (home / "a.txt").write_bytes(
        b"A man is playing the guitar.\n\n  \ncaf\xe9\n"
        + LONG.encode()
        + b"\n[MASK] is a man [SEP] [X]\nA  man is\tplaying the guitar. \n\xe2\x80\x8b\n"
    )
    (home / "b.csv").write_bytes(
        b'n,text\n1,"Two dogs, and a man"\n2,\xff\n3\n4,""\n5,oil\n6,A man is playing the guitar.\n'
    )
    (home / "c.tsv").write_bytes(b"text\tn\nWhat do you want?\t1\noil\t2\n \t3\n\xff\t4\n")
    (home / "d.jsonl").write_bytes(
        b'{"text": "The price of oil rose"}\n{"text": "a line\\nbreak"}\n{"text": null}\n{"te\n'
        b'[1]\n{"title": "x"}\n{"text": 5}\n'
    )
    (home / "deep" / "e.ndjson").write_text('{"text": "Penguin"}\n{"text": "oil"}\n')
    values = [b"She sells sea shells", None, b"", b"\xff", b"the stage"]
    table = pa.table({"text": raw_text(values)})
    pq.write_table(table, home / "deep" / "f.parquet", row_group_size=2)
    (home / "notes.md").write_text("no text for us")
    return home


def test_every_row_of_every_format_is_accounted_for(
    folder, tmp_path, bert_folder, own_store, capsys
):
    out = tmp_path / "corpus"
    assert run_prepare(out, bert_folder, "--input", folder) == 0
    manifest = Corpus.open(out).manifest
    kept = [text for texts in KEPT.values() for text in texts]
    assert sorted(rows(out)["text"].to_pylist()) == sorted(kept)
    assert manifest["dropped"] == DROPPED
    assert (manifest["rows"], manifest["sampled_out"]) == (len(kept), 0)
    assert manifest["rows_read"] == len(kept) + sum(DROPPED.values())
    assert (manifest["truncated"], manifest["max_length"]) == (1, 32)
    assert manifest["tokens"] == sum(map(len, rows(out)["input_ids"].to_pylist()))
    assert (manifest["source"]["files"], manifest["source"]["files_ignored"]) == (6, 1)
    left = ["data", "data/part-000000.parquet", "manifest.json", "report.html", "result.json"]
    assert sorted(str(p.relative_to(out)) for p in out.rglob("*")) == left
    result = json.loads((out / "result.json").read_text())
    captured = capsys.readouterr()
    where, shown, ending = captured.out.split("\n\n")
    assert [line.split()[0] for line in where.splitlines()[2:5]] == ["read", "kept", "empty"]
    shown = dict(line.split() for line in shown.splitlines())
    assert list(shown) == [name for name in result if name not in INTERNAL]
    assert "  folder  corpus\n  report  corpus/report.html\n  next    " in ending
    assert int(shown["dropped_duplicate"]) == result["dropped_duplicate"] == DROPPED["duplicate"]
    begins = ("prepare ", "warning: ", "note: the md and rst files in", "note: 1 sentence of ")
    assert all(line.startswith(begins) for line in captured.err.splitlines())
    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.data.metrics["rows"]) == ("prepare / corpus", len(kept))
    attached = [file.path for file in own_store.list_artifacts(run.info.run_id)]
    assert attached == ["manifest.json", "report.html", "result.json"]


def test_the_installed_command_shows_its_own_progress_alone(folder, tmp_path, bert_folder):
    command = Path(sys.executable).with_name("cotbert")
    words = ("prepare", "--input", folder, "--encoder", bert_folder, "--output", "corpus")
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stderr.splitlines()} == {
        *("prepare", "warning:", "note:")
    }
    shown = done.stdout.split("\n\n")[1].splitlines()
    result = json.loads(Path("corpus/result.json").read_text())
    assert [line.split()[0] for line in shown] == [name for name in result if name not in INTERNAL]
    assert (tmp_path / "corpus" / "manifest.json").is_file()


def test_parts_hold_the_tokens_of_each_sentence_alone(folder, tmp_path, encoder_folder):
    from transformers import AutoTokenizer

    table = rows(prepared(tmp_path / "corpus", encoder_folder, folder, max_length=16).path)
    assert table.schema.names == ["id", "text", "input_ids"]
    assert [str(t) for t in table.schema.types] == ["int64", "string", "list<element: int32>"]
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    blank = " " if "roberta" in encoder_folder else ""  # as inside a template
    plain = [r for r in table.to_pylist() if "[MASK]" not in r["text"]]
    assert len(plain) == len(table) - 1
    for row in plain:
        ids = tokenizer(blank + row["text"], add_special_tokens=False)["input_ids"]
        assert row["input_ids"] == ids[:16]
    unknown = tokenizer.unk_token_id
    used = {i for ids in table["input_ids"].to_pylist() for i in ids}
    assert used & set(tokenizer.all_special_ids) <= {unknown}, "typed [MASK] and [SEP] are text"


@pytest.mark.parametrize(
    ("content", "reasons"),
    [(b"", "none read"), (b"\xff\n\n \n\xff", "2 empty, 2 invalid_utf8"),
     (b"\xe2\x80\x8b\n", "1 no_tok")],
)  # fmt: skip
def test_a_corpus_of_nothing_is_refused_and_nothing_left(
    tmp_path, bert_folder, capsys, content, reasons
):
    (tmp_path / "a.txt").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    assert run_prepare(tmp_path / "corpus", bert_folder, "--input", tmp_path / "a.txt") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("cotbert: nothing is left of ")
    assert all(reason in line for reason in reasons.split(", "))
    assert sorted(tmp_path.iterdir()) == before


def test_invalid_rows_may_stop_the_job(folder, tmp_path, bert_folder, made, own_store, capsys):
    words = ("--input", folder / "d.jsonl", "--on-invalid", "fail")
    assert run_prepare(tmp_path / "corpus", bert_folder, *words) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"cotbert: '{folder / 'd.jsonl'}' has rows that cannot be read (")
    assert "2 invalid_json" in line
    assert not list(tmp_path.glob("corpus*"))
    (run,) = own_store.search_runs([own_store.get_experiment_by_name("cotbert").experiment_id])
    assert run.info.status == "FAILED"
    assert "cannot be read" in run.data.tags["error"]
    (tmp_path / "a.txt").write_text("one\n\n  \ntwo\n")
    assert len(made(tmp_path / "a.txt", on_invalid="fail")) == 2, "blank rows do not"


def test_an_opened_corpus_checks_what_it_is_used_for(folder, made, bert_folder, roberta_folder):
    corpus = made(folder, max_length=16)
    bert, roberta = (load_tokenizer(f).hash for f in (bert_folder, roberta_folder))
    corpus.check_tokenizer(bert_folder, bert, 16)
    with pytest.raises(UserError, match="tokenizer differs from that of"):
        corpus.check_tokenizer(roberta_folder, roberta, 16)
    with pytest.raises(UserError, match="was cut to 16 tokens and max_length is 17"):
        corpus.check_tokenizer(bert_folder, bert, 17)
    with pytest.raises(UserError, match=r"has no manifest\.json: make one with"):
        Corpus.open(folder)
    table = rows(corpus.path).to_pylist()
    assert [ids.tolist() for ids in corpus.batch().sentences] == [row["input_ids"] for row in table]
    assert corpus.texts() == {row["id"]: row["text"] for row in table}
