"""cotbert prepare on Ray: where every row goes, what a corpus holds, and what is never left."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_corpus import rows

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.commands.printing import INTERNAL
from pipelines.prepare import prepare
from pipelines.preparing import driver
from pipelines.preparing.options import PrepareOptions
from pipelines.reading import sources
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
    raw = pa.array(values, pa.binary())
    text = pa.StringArray.from_buffers(len(raw), *raw.buffers()[1:], raw.buffers()[0])
    pq.write_table(pa.table({"text": text}), home / "deep" / "f.parquet", row_group_size=2)
    (home / "notes.md").write_text("no text for us")
    return home


@pytest.fixture
def made(tmp_path, bert_folder):
    """Prepare inputs into a new folder; its corpus."""

    def make(*inputs, name="corpus", encoder=bert_folder, **options):
        out = tmp_path / name
        prepare(PrepareOptions(tuple(map(str, inputs)), encoder, **options), out)
        return Corpus.open(out)

    return make


def cut_small(monkeypatch, shard_bytes, part_rows):
    monkeypatch.setattr(sources, "plan", partial(sources.plan, shard_bytes=shard_bytes))
    monkeypatch.setattr(driver, "PART_ROWS", part_rows)


def test_every_row_of_every_format_is_accounted_for(
    folder, tmp_path, bert_folder, own_store, capsys
):
    out = tmp_path / "corpus"
    command = ["prepare", "--input", str(folder), "--output", str(out), "--encoder", bert_folder]
    assert main(command) == 0
    manifest = Corpus.open(out).manifest
    kept = [text for texts in KEPT.values() for text in texts]
    assert sorted(rows(out)["text"].to_pylist()) == sorted(kept)
    assert manifest["dropped"] == DROPPED
    assert (manifest["rows"], manifest["sampled_out"]) == (len(kept), 0)
    assert manifest["rows_read"] == len(kept) + sum(DROPPED.values())
    assert (manifest["truncated"], manifest["max_length"]) == (1, 32)
    assert manifest["tokens"] == sum(map(len, rows(out)["input_ids"].to_pylist()))
    assert (manifest["source"]["files"], manifest["source"]["files_ignored"]) == (6, 1)
    assert sorted(p.name for p in out.iterdir()) == [
        "data",
        "manifest.json",
        "report.html",
        "result.json",
    ]
    assert [p.name for p in (out / "data").iterdir()] == ["part-000000.parquet"]
    result = json.loads((out / "result.json").read_text())
    captured = capsys.readouterr()
    where, shown, ending = captured.out.split("\n\n")
    assert [line.split()[0] for line in where.splitlines()[2:5]] == ["read", "kept", "empty"]
    shown = dict(line.split() for line in shown.splitlines())
    assert list(shown) == [name for name in result if name not in INTERNAL]
    assert "  folder  corpus\n  report  corpus/report.html\n  next    " in ending
    assert int(shown["dropped_duplicate"]) == result["dropped_duplicate"] == DROPPED["duplicate"]
    assert all(line.startswith(("prepare ", "warning: ")) for line in captured.err.splitlines())
    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.data.metrics["rows"]) == ("prepare / corpus", len(kept))
    attached = [file.path for file in own_store.list_artifacts(run.info.run_id)]
    assert attached == ["manifest.json", "report.html"]


def test_the_installed_command_shows_its_own_progress_alone(folder, tmp_path, bert_folder):
    command = Path(sys.executable).with_name("cotbert")
    words = ("prepare", "--input", folder, "--encoder", bert_folder, "--output", "corpus")
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stderr.splitlines()} == {"prepare", "warning:"}
    shown = done.stdout.split("\n\n")[1].splitlines()
    result = json.loads(Path("corpus/result.json").read_text())
    assert [line.split()[0] for line in shown] == [name for name in result if name not in INTERNAL]
    assert (tmp_path / "corpus" / "manifest.json").is_file()


def test_parts_hold_the_tokens_of_each_sentence_alone(folder, made, encoder_folder):
    from transformers import AutoTokenizer

    table = rows(made(folder, encoder=encoder_folder, max_length=16).path)
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


def test_a_very_long_sentence_is_kept_and_cut(folder, made):
    corpus = made(folder / "a.txt", max_length=8)
    (long,) = [r for r in rows(corpus.path).to_pylist() if len(r["text"]) > 1000]
    assert (len(long["text"]), len(long["input_ids"])) == (len(LONG) - 1, 8)
    assert corpus.manifest["truncated"] == 2


def test_rows_do_not_depend_on_shards_or_the_order_of_input(folder, made, monkeypatch):
    first = made(folder, name="one")
    cut_small(monkeypatch, 30, 2)
    files = sorted(map(str, folder.rglob("*.*")), reverse=True)
    other = made(*(f for f in files if not f.endswith(".md")), name="two")
    assert len(list(first.path.glob("data/part-*"))) == 1
    assert len(list(other.path.glob("data/part-*"))) > 3
    assert rows(first.path).sort_by("id").equals(rows(other.path).sort_by("id"))
    own = ("dropped", "rows", "rows_read", "tokens", "truncated", "tokenizer_hash")
    assert {k: first.manifest[k] for k in own} == {k: other.manifest[k] for k in own}


def test_a_corpus_is_the_same_in_whatever_order_its_files_are_named(folder, made):
    files = [str(f) for f in sorted(folder.rglob("*.*")) if f.suffix != ".md"]
    first, other = made(*files, name="one"), made(*files[::-1], files[0], name="two")
    for path in (first.path / "manifest.json", *first.path.glob("data/part-*")):
        assert (other.path / path.relative_to(first.path)).read_bytes() == path.read_bytes(), (
            path.name
        )


def test_a_sample_is_the_same_however_the_input_is_cut(folder, made, monkeypatch):
    whole = rows(made(folder, name="whole").path)
    first = made(folder, name="one", sample=4)
    cut_small(monkeypatch, 30, 2)
    again = made(folder, name="two", sample=4)
    assert rows(first.path).sort_by("id").equals(rows(again.path).sort_by("id"))
    assert first.manifest["rows"] == 4
    assert set(rows(first.path)["id"].to_pylist()) < set(whole["id"].to_pylist())
    counts = first.manifest
    accounted = counts["rows"] + sum(counts["dropped"].values()) + counts["sampled_out"]
    assert accounted == counts["rows_read"] == 11 + sum(DROPPED.values())


def test_docstrings_are_a_source(made):
    corpus = made("docstrings:yaml,pydantic", sample=50)
    assert len(corpus) == 50
    assert corpus.manifest["source"]["inputs"] == ["docstrings:yaml,pydantic"]


@pytest.mark.parametrize(
    ("content", "reasons"),
    [(b"", "none read"), (b"\xff\n\n \n\xff", "2 empty, 2 invalid_utf8"), ("\u200b\n", "1 no_tok")],
)
def test_a_corpus_of_nothing_is_refused_and_nothing_left(
    tmp_path, bert_folder, capsys, content, reasons
):
    (tmp_path / "a.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "corpus"
    command = ["prepare", "--input", str(tmp_path / "a.txt"), "--output", str(out)]
    assert main([*command, "--encoder", bert_folder]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("cotbert: nothing is left of ")
    assert all(reason in line for reason in reasons.split(", "))
    assert sorted(tmp_path.iterdir()) == before


def test_invalid_rows_may_stop_the_job(folder, tmp_path, bert_folder, own_store, capsys):
    out = tmp_path / "corpus"
    command = ["prepare", "--input", str(folder / "d.jsonl"), "--output", str(out)]
    assert main([*command, "--encoder", bert_folder, "--on-invalid", "fail"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"cotbert: '{folder / 'd.jsonl'}' has rows that cannot be read (")
    assert "2 invalid_json" in line
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("corpus")] == []
    (run,) = own_store.search_runs([own_store.get_experiment_by_name("cotbert").experiment_id])
    assert run.info.status == "FAILED"
    assert "cannot be read" in run.data.tags["error"]


def test_blank_rows_do_not_stop_a_strict_job(tmp_path, made):
    (tmp_path / "a.txt").write_text("one\n\n  \ntwo\n")
    assert len(made(tmp_path / "a.txt", on_invalid="fail")) == 2


def test_an_existing_corpus_is_not_touched(folder, made, tmp_path):
    corpus = made(folder / "c.tsv")
    before = {p: p.read_bytes() for p in corpus.path.rglob("*.*")}
    with pytest.raises(UserError, match="already holds something"):
        made(folder)
    assert {p: p.read_bytes() for p in corpus.path.rglob("*.*")} == before
    assert not Path(f"{corpus.path}.partial").exists()


def test_an_opened_corpus_checks_what_it_is_used_for(
    folder, made, bert_folder, roberta_folder, tmp_path
):
    corpus = made(folder, max_length=16)
    bert, roberta = (load_tokenizer(f).hash for f in (bert_folder, roberta_folder))
    corpus.check_tokenizer(bert_folder, bert, 16)
    with pytest.raises(UserError, match="tokenizer differs from that of"):
        corpus.check_tokenizer(roberta_folder, roberta, 16)
    with pytest.raises(UserError, match="was cut to 16 tokens and max_length is 17"):
        corpus.check_tokenizer(bert_folder, bert, 17)
    with pytest.raises(UserError, match=r"has no manifest\.json: make one with"):
        Corpus.open(tmp_path)
    table = rows(corpus.path)
    read = corpus.sentences()
    assert [read[n].tolist() for n in range(len(read))] == table["input_ids"].to_pylist()
    assert corpus.texts() == dict(zip(*(table[c].to_pylist() for c in ("id", "text")), strict=True))
