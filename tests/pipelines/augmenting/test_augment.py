"""cotbert augment with a language model: rows, counts, mistakes, and a kill half-way. No Ray."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chat_server import KEY, PROMPT, ChatServer, answer, paraphrase
from embeddings_folders import change_manifest
from tiny_corpus import rows, write_corpus

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.files import read_json
from pipelines.augmenting import methods
from pipelines.augmenting.parts import augment_part
from pipelines.cli import main
from pipelines.commands.printing import INTERNAL
from pipelines.storage.corpus import Corpus

TEXTS = (
    ["A man is playing the guitar .", "Two dogs run", "oil", "the stage", "What do you want ?"],
    ["She sells sea shells by the sea shore", "the room", "a field"],
)
FLAT = [text for part in TEXTS for text in part]
ANSWERS = {
    "Two dogs run": "two dogs, run!",
    "oil": "As an AI, I have no oil.",
    "the stage": "1. a stage\n2. the scene",
    "the room": '"a  room,\tor\x00 a hall \ud83d"',  # half of an emoji
    "a field": "\u200b",
}


def reply(sentence, number):
    return answer(ANSWERS.get(sentence, paraphrase(sentence)))


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def corpus(tmp_path, bert_folder):
    return write_corpus(tmp_path / "corpus", bert_folder, *TEXTS, max_length=8)


def command(corpus, url, out="out", *more):
    prompt = corpus.parent / "prompt.txt"
    prompt.write_text(PROMPT)
    words = ["augment", "--corpus", str(corpus), "--method", "llm", "--output", str(out)]
    words += ["--base-url", url, "--model", "a-model", "--prompt", str(prompt), "--max-ratio", "4"]
    return [*words, *more]


@pytest.mark.drawn
def test_each_row_gets_its_rewrite_or_keeps_its_source(
    own_store, corpus, bert_folder, tmp_path, capsys
):
    prices = ("--price-in", "1000", "--price-out", "2000")
    with ChatServer(reply) as server:
        assert main(command(corpus, server.url, "out", *prices)) == 0
    found, before = rows(tmp_path / "out"), rows(corpus)
    for name in ("id", "text", "input_ids"):
        assert found[name].equals(before[name])
    assert found.schema.names == ["id", "text", "input_ids", "augmented_text", "augmented_ids"]
    expected = {text: paraphrase(text) for text in FLAT} | {t: t for t in ANSWERS}
    expected["the room"] = "a room, or a hall ?"
    assert found["augmented_text"].to_pylist() == [expected[text] for text in FLAT]
    tokenizer = load_tokenizer(bert_folder)
    for row in found.to_pylist():
        assert row["augmented_ids"] == tokenizer([row["augmented_text"]], 8)[0].tolist()

    manifest, old = read_json(tmp_path / "out/manifest.json"), read_json(corpus / "manifest.json")
    assert manifest == {
        **old,
        "columns": ["augmented"],
        "augmentation": manifest["augmentation"],
    }
    entry = manifest["augmentation"]
    reasons = {"equal": 1, "no_tokens": 1, "refusal": 1, "several_lines": 1}
    assert entry["counts"] == {
        "rewritten": 4,
        "source_kept": reasons,
        "truncated": sum(len(tokenizer([t], 99)[0]) > 8 for n, t in expected.items() if n != t),
        "repeated": 0,
        "tokens_in": 88,
        "tokens_out": 40,
        "cost": 0.168,
    }
    assert (entry["method"], entry["model"], entry["prompt"]) == ("llm", "a-model", PROMPT)
    assert entry["corpus_digest"] == Corpus.open(corpus).digest
    assert Corpus.open(tmp_path / "out").batch().augmented is not None

    result = read_json(tmp_path / "out/result.json")
    assert (result["rows"], result["rewritten"], result["source_kept"]) == (8, 4, 4)
    captured = capsys.readouterr()
    facts, ending = captured.out.split("\n\n")
    shown = [line.split()[0] for line in facts.splitlines()]
    assert shown == [name for name in result if name not in INTERNAL]
    assert ending.startswith("4 of 8 rows now have a rewrite.\n")
    assert f"train denosent-base --corpus out --encoder {bert_folder} --batch-size 4" in " ".join(
        ending.split()
    ).replace(f"{tmp_path}/", "")
    assert all(line.startswith("augment ") for line in captured.err.splitlines())
    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.info.status) == ("augment / out", "FINISHED")
    assert run.data.metrics["source_kept_refusal"] == 1
    names = {a.path for a in own_store.list_artifacts(run.info.run_id)}
    assert names == {"manifest.json", "report.html", "result.json"}
    report = (tmp_path / "out" / "report.html").read_text()
    assert "source kept: several_lines" in report
    assert "As an AI, I have no oil." in report
    files = sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "out").rglob("*.*"))
    parts = [f"out/data/part-00000{number}.parquet" for number in (0, 1)]
    assert files == [*parts, "out/manifest.json", "out/report.html", "out/result.json"]
    assert not secret_in(tmp_path)


def test_few_rewrites_are_a_warning(unrecorded, corpus, capsys):
    with ChatServer(lambda *_: answer("A sentence.\nAnother.")) as server:
        assert main(command(corpus, server.url, "out")) == 0
    said = capsys.readouterr().err
    assert "warning: 8 of 8 rows keep their own text in place of a rewrite: report.html" in said


@pytest.mark.parametrize(
    ("rows", "distinct", "warned"), [(12, 1, True), (12, 7, False), (9, 1, False)]
)
def test_rewrites_that_are_the_same_are_a_warning(
    unrecorded, bert_folder, tmp_path, capsys, rows, distinct, warned
):
    """distinct: number of different answers, the last of which all other rows get."""
    texts = [f"sentence {number}" for number in range(rows)]
    given = {text: f"another {min(n, distinct - 1)}" for n, text in enumerate(texts)}
    corpus = write_corpus(tmp_path / "corpus", bert_folder, texts, max_length=8)
    with ChatServer(lambda sentence, _: answer(given[sentence])) as server:
        assert main(command(corpus, server.url, "out")) == 0
    message = "warning: 12 of 12 rewrites are the same as another row's: check --prompt"
    assert (message in capsys.readouterr().err) is warned
    assert read_json(tmp_path / "out/result.json")["repeated"] == rows - distinct + 1


def secret_in(folder):
    """Files below a folder that hold the key."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_stopped_job_continues_with_other_limits_but_not_with_another_model(
    own_store, corpus, tmp_path, capsys
):
    with ChatServer(reply) as server:
        small = ("--budget-tokens", "50", "--concurrency", "1")
        assert main(command(corpus, server.url, "out", *small)) == 1
        assert "--budget-tokens 50 is spent: give the same" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
        assert len(server.asked) == 3
        assert main([*command(corpus, server.url), "--temperature", "0.5"]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "(temperature differ): give the same settings or another output" in line
        assert len(server.asked) == 3
        moved = corpus.rename(tmp_path / "moved")
        assert main(command(moved, server.url, "out", "--concurrency", "2")) == 0
        assert "MLflow refused" not in capsys.readouterr().err
        assert len(server.asked) == len(FLAT)
    result = read_json(tmp_path / "out/result.json")
    assert (result["rows_of_this_run"], result["tokens_in"]) == (5, 88)
    (run,) = own_store.search_runs(["1"])
    assert (run.info.run_id, run.info.status) == (result["mlflow_run_id"], "FINISHED")


def job_of_its_own(words, log):
    """The command in a process forked from this one, which has all modules loaded."""

    def run():
        target = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os._exit(main(words))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process


def test_a_killed_job_asks_for_no_row_twice(unrecorded, bert_folder, tmp_path):
    """Killed twice; what may be asked again is what was under way, at most the concurrency."""
    many = [f"a man and {n} dogs" for n in range(36)]
    corpus = write_corpus(tmp_path / "corpus", bert_folder, many[:15], many[15:])
    log, at_once = tmp_path / "log", 4
    again = 0
    with ChatServer(delay=0.03) as server:
        words = command(corpus, server.url, tmp_path / "out", "--concurrency", str(at_once))
        for stop_at in (8, 22):
            process = job_of_its_own(words, log)
            until = time.monotonic() + 250
            while len(server.answered) < stop_at:
                assert process.is_alive(), log.read_text()
                assert time.monotonic() < until
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            again += at_once
            time.sleep(0.1)
            assert not (tmp_path / "out").exists()
            assert not secret_in(tmp_path)
        assert main(words) == 0
        counts = Counter(server.asked)
        assert set(counts) == set(many)
        assert len(server.asked) - len(many) <= again
        assert max(counts.values()) <= 3
        assert main(command(corpus, server.url, tmp_path / "whole")) == 0
    assert rows(tmp_path / "out").equals(rows(tmp_path / "whole"))
    assert rows(tmp_path / "out")["augmented_text"].to_pylist() == [paraphrase(t) for t in many]
    assert not secret_in(tmp_path)
    assert KEY not in log.read_text()


@pytest.mark.parametrize("fails", [1, 99])
def test_rows_without_an_answer_at_the_end_of_a_part_are_asked_for_again(
    unrecorded, corpus, tmp_path, fails
):
    """The endpoint may have been away; a sentence that fails again keeps its source."""

    def reply(sentence, number):
        away = sentence in (*TEXTS[0][3:], TEXTS[1][2]) and number <= fails
        return (400, {}, "") if away else answer(paraphrase(sentence))

    with ChatServer(reply) as server:
        words = ("--retries", "0", "--concurrency", "1")
        assert main(command(corpus, server.url, "out", *words)) == 0
    assert len(server.asked) == len(FLAT) + 3
    manifest = read_json(tmp_path / "out/manifest.json")
    kept = manifest["augmentation"]["counts"]["source_kept"]
    assert kept == ({} if fails == 1 else {"failed": 3})


def test_an_endpoint_that_is_gone_at_the_end_costs_no_row(unrecorded, corpus, tmp_path, capsys):
    with ChatServer() as server:
        server.reply = lambda *_: setattr(server, "models", 401) or (503, {}, "")
        assert main(command(corpus, server.url, "out", "--retries", "0")) == 2
        assert "answers 401: check the key" in capsys.readouterr().err
        server.reply, server.models = reply, 200
        assert main(command(corpus, server.url)) == 0
    counts = read_json(tmp_path / "out/manifest.json")["augmentation"]["counts"]
    assert "failed" not in counts["source_kept"]


def test_documents_held_out_texts_and_an_encoder_s_place_stay(
    unrecorded, corpus, tmp_path, bert_folder
):
    for number, path in enumerate(sorted(corpus.glob("data/part-*"))):
        table = pq.read_table(path)
        for name, kind in (("document", pa.int64()), ("position", pa.int32())):
            values = pa.array(range(number, number + len(table)), kind)
            table = table.append_column(pa.field(name, kind, nullable=False), values)
        pq.write_table(table, path)
    documents = {"by": "row", "documents": 8, "one_sentence": 0, "held_out": 0}
    change_manifest(corpus, documents=documents, encoder="./gone")
    (corpus / "held-out.parquet").write_bytes(b"queries")
    with ChatServer(reply) as server:
        assert main(command(corpus, server.url, "out", "--encoder", bert_folder)) == 0
    found, before = rows(tmp_path / "out"), rows(corpus)
    for name in ("id", "text", "document", "position"):
        assert found[name].equals(before[name])
        assert found.schema.field(name).equals(before.schema.field(name))
    assert Corpus.open(tmp_path / "out").has_documents
    assert (tmp_path / "out" / "held-out.parquet").read_bytes() == b"queries"
    assert read_json(tmp_path / "out/manifest.json")["encoder"] == "./gone"


def test_a_part_that_is_finished_is_not_written_again(unrecorded, corpus, tmp_path, monkeypatch):
    """The first run fails at its second part; the second run writes that one alone."""
    written = []

    def part(plan, name, rewriter, tell):
        written.append(name)
        if len(written) == 2:
            raise RuntimeError("out of memory")
        return augment_part(plan, name, rewriter, tell)

    monkeypatch.setattr(methods, "augment_part", part)
    with ChatServer(reply) as server:
        assert main(command(corpus, server.url)) == 1
        assert main(command(corpus, server.url)) == 0
    assert [name[-9:] for name in written] == ["0.parquet", "1.parquet", "1.parquet"]
    assert sorted(server.asked) == sorted(FLAT)


def test_a_job_that_was_killed_before_its_folder_got_its_name_is_finished(
    unrecorded, corpus, tmp_path, monkeypatch
):
    rename = Path.rename

    def killed(path, target):
        if path.name == "output":
            raise RuntimeError("killed")
        return rename(path, target)

    with ChatServer(reply) as server:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed)
            assert main(command(corpus, server.url)) == 1
        assert main(command(corpus, server.url)) == 0
    assert sorted(server.asked) == sorted(FLAT)
    assert rows(tmp_path / "out")["text"].to_pylist() == FLAT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": ["augmented"]}, "already has augmented texts: train on it, or augment"),
        ({"columns": ["augmented", "negative"]}, "holds triples, which already have"),
        ({"packed": {}}, "is packed already and has no texts: give the corpus it was packed from"),
        ({"tokenizer_hash": "0"}, "whose tokenizer differs from that of"),
        ({"encoder": "./gone"}, "encoder folder './gone' does not exist"),
    ],
)
def test_corpora_that_cannot_be_augmented_are_reported(corpus, tmp_path, capsys, changes, message):
    change_manifest(corpus, **changes)
    with ChatServer(reply) as server:
        assert main(command(corpus, server.url, tmp_path / "out")) == 2
        assert server.keys == set()
    line = capsys.readouterr().err
    assert message in line
    assert ("give its new place with --encoder" in line) == ("encoder" in changes)
    assert not list(tmp_path.glob("out*"))


def test_mistakes_are_refused_before_anything_starts(corpus, tmp_path, capsys):
    url = "http://127.0.0.1:9/v1"  # nobody answers there
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("dear")
    (tmp_path / "empty").mkdir()
    base = command(corpus, url)
    other = [*base[:3], "--method", "back-translation", "--output", str(tmp_path / "out")]
    mistakes = {
        "cannot be reached (ConnectionError: HTTP": base,
        "already holds something: give a new folder": command(corpus, url, tmp_path / "full"),
        "has no manifest.json: make one with": command(tmp_path / "empty", url),
        "environment variable NO_KEY is not set": [*base, "--key-variable", "NO_KEY"],
        "--beam belongs to --method back-translation and the method is llm": [*base, "--beam", "2"],
        "workers is 2 and the method is llm": [*base, "--workers", "2"],
        "min_ratio is 2.0 and max_ratio is 4.0": [*base, "--min-ratio", "2"],
        "prompt 'none' cannot be read": [*base, "--prompt", "none"],
        "--method llm has no --model": [w for w in base if w not in ("--model", "a-model")],
        "forward './none' is not a folder": [*other, "--forward", "./none"],
        "top_k is 3 and has no effect without --temperature": [*other, "--top-k", "3"],
    }
    for message, words in mistakes.items():
        assert main(words) == 2
        stderr = capsys.readouterr().err
        assert message in stderr
        assert len(stderr.splitlines()) == 1
    assert not list(tmp_path.glob("out*"))
