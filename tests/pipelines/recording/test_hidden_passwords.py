"""A password in MLflow's address, or in an input's, is in no output and in no file of a job."""

from __future__ import annotations

import json
import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster import jobs
from cotbert_core.errors import UserError
from pipelines.adapting import job_record
from pipelines.adapting.options import AdaptOptions
from pipelines.augmenting import chat_endpoint
from pipelines.cli import main
from pipelines.embedding.manifest import manifest as embeddings_manifest
from pipelines.embedding.options import EmbedOptions
from pipelines.preparing.manifest import CorpusJob, corpus_manifest
from pipelines.preparing.options import PrepareOptions
from pipelines.reading.data_folder import REFUSED_FILE
from pipelines.reading.read_plan import ReadPlan
from pipelines.recording import mlflow_run
from pipelines.recording.artifacts import RefusedError
from pipelines.recording.fetching import fetch_model
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.registry import register
from pipelines.recording.store import SILENT, reason
from pipelines.recording.tracking import Run, end_run, tracked_run
from pipelines.storage.resumable_output import resumable_output
from pipelines.tuning.trial import Sweep, one_line

MARK = "S3cretMarker"
TOKEN = "0therMarker"
ADDRESSES = (f"s3://key:{MARK}@bucket/a.txt", f"s3://bucket/a.txt?secret_key={MARK}")


@pytest.fixture
def closed_store(tmp_path, monkeypatch):
    """An address with credentials where nothing answers; the current folder is tmp_path."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://user:{MARK}@127.0.0.1:{free.getsockname()[1]}?token={TOKEN}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(mlflow_run, "RETRY_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    return uri


def check_hidden(folder, *texts):
    """Return the files below the folder; check that neither they, nor their names, nor the texts
    hold a credential."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    held = [*texts, *map(str, files), *(path.read_bytes().decode("latin-1") for path in files)]
    assert [text for text in held if MARK in text or TOKEN in text] == []
    return files


def test_a_job_without_its_store_hides_it_in_messages_and_queue(closed_store, tmp_path, capfd):
    out = tmp_path / "out"
    settings = {"input": closed_store}
    with (
        pytest.raises(RuntimeError, match="cannot reach"),
        tracked_run("train", settings, queue_folder=out, name=closed_store),
    ):
        raise RuntimeError(f"cannot reach {closed_store} with {MARK}")
    with pytest.raises(RuntimeError, match="no"), tracked_run("evaluate", settings):
        raise RuntimeError("no")
    end_run("0" * 32, "KILLED")
    assert main(["track-sync", str(out)]) == 1
    captured = capfd.readouterr()
    assert [p.name for p in check_hidden(out, *captured)]
    assert captured.err.count("MLflow at http://***@127.0.0.1:") == 4
    kinds = [json.loads(line) for line in OfflineQueue(out).path.open()]
    assert [r["kind"] for r in kinds] == ["create", "params", "tags", "tags", "end"]
    assert kinds[3]["values"]["error"].startswith("cannot reach http://***@127.0.0.1")


def test_the_registry_and_models_of_a_store_hide_it(closed_store, tmp_path, bert_folder, capfd):
    run = Run(None, "0" * 32)
    assert register(run, Path(bert_folder), "name") is None
    captured = capfd.readouterr()
    assert "at MLflow http://***@127.0.0.1:" in captured.err
    check_hidden(tmp_path, *captured)
    for name in ("models:/encoder@best", "models:/encoder/latest", f"runs:/{MARK}/model"):
        with pytest.raises(
            UserError, match=r"cannot be loaded from MLflow at http://\*\*\*@127"
        ) as e:
            fetch_model(name)
        check_hidden(tmp_path, str(e.value))
    assert main(["evaluate", "models:/encoder@best", "--output", "o.json"]) == 2
    check_hidden(tmp_path, *capfd.readouterr())


def test_what_a_store_refuses_is_kept_without_its_address(closed_store, tmp_path):
    error = RuntimeError(f"\nno: {closed_store} ({MARK})\nmore")
    assert reason(error).startswith("no: http://***@127.0.0.1")
    box = OfflineQueue(tmp_path / "job")
    box.add({"kind": "params", "run": "x", "time": 1, "values": {"a": "1"}})

    class Refusing:
        def log_batch(self, *_, **__):
            raise RefusedError(reason(error))

    assert box.send_first(Refusing()) == 1
    assert (tmp_path / "job" / REFUSED_FILE).is_file()
    check_hidden(tmp_path / "job")


def test_errors_and_descriptions_of_jobs_hide_it(closed_store):
    assert one_line(RuntimeError(f"a\n{closed_store} {MARK}")).startswith("http://***@127")
    sweep = Sweep("folder", "corpus", closed_store)
    assert sweep.tracking_uri == closed_store
    words = ["prepare", "--input", ADDRESSES[0], "--output", "/x"]
    assert jobs._line(words) == "cotbert prepare --input 's3://***@bucket/a.txt' --output /x"
    *_, note = jobs._notes({"MLFLOW_TRACKING_URI": closed_store}, False)
    assert note.startswith("MLFLOW_TRACKING_URI is http://***@127.0.0.1")
    settings = job_record.option_record(AdaptOptions((f"https://user:{MARK}@host/a.txt",)))
    assert "***" in settings["inputs"][0]
    told = (one_line(RuntimeError(closed_store)), repr(sweep), note, json.dumps(settings))
    check_hidden("/nowhere", *told)


def test_an_endpoint_s_errors_hide_proxies_and_keys(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{MARK}@proxy:3128")
    error = OSError(f"proxy http://user:{MARK}@proxy:3128 refused {MARK}")
    assert chat_endpoint.described(error) == "OSError: proxy http://***@proxy:3128 refused ***"


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_input_s_credentials_are_in_no_record_of_a_job(address, tmp_path):
    record = {"job": "prepare", "options": {"inputs": [address]}, "files": {address: [1, 2]}}

    def begin():
        with resumable_output(tmp_path / "out", record) as work:
            (work.output / "part").write_text("work")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        begin()
    (kept,) = (path for path in check_hidden(tmp_path) if path.name == "record.json")
    assert "***" in kept.read_text()
    with resumable_output(tmp_path / "out", record) as work:
        assert work.before, "the same job continues with what is done"


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_input_s_credentials_are_in_no_manifest(address, tmp_path):
    plan = ReadPlan([], [], 0, "text")
    rules = SimpleNamespace(excluded=())
    options, tokenizer = PrepareOptions((address,), "encoder"), SimpleNamespace(hash="x")
    ledger = SimpleNamespace(counts=Counter(), skipped={}, precisions=set())
    job = CorpusJob(options, plan, rules, tokenizer)
    corpus = corpus_manifest(job, None, Counter(), {})
    vectors = embeddings_manifest(EmbedOptions("model", (address,)), plan, {}, ledger)
    for made, inputs in ((corpus, corpus["source"]["inputs"]), (vectors, vectors["inputs"])):
        check_hidden(tmp_path, json.dumps(made))
        assert "***" in inputs[0]


@pytest.mark.real
def test_a_store_that_answers_is_not_named_with_its_password_either(
    server, server_client, monkeypatch, tmp_path, capfd
):
    """MLflow itself prints a run's address when it ends."""
    monkeypatch.delenv(SILENT, raising=False)
    monkeypatch.setenv(SILENT, "")
    monkeypatch.delenv(SILENT)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri.replace("://", f"://user:{MARK}@"))
    with tracked_run("train", {"input": f"s3://a:{MARK}@b"}, queue_folder=tmp_path / "job") as run:
        run.tags({"note": MARK})
    check_hidden(tmp_path / "job", *capfd.readouterr())
    kept = server_client.get_run(run.id)
    assert kept.data.params["input"] == "s3://***@b"
    check_hidden("/nowhere", str(kept.to_dictionary()))


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here", "own_cache")
def test_no_command_prints_or_keeps_the_store_s_password(
    closed_store, bert_folder, tmp_path, capfd
):
    space = tmp_path / "rates.yaml"
    space.write_text("recipe: quickstart\nsettings: {optimizer.learning_rate: {grid: [1e-3]}}")
    text, corpus, vectors = tmp_path / "text.txt", tmp_path / "corpus", tmp_path / "vectors"
    texts = [f"{who} walks {n} miles" for who in ("a man", "two dogs", "she") for n in range(8)]
    text.write_text("\n".join(texts))
    pairs = tmp_path / "pairs.tsv"
    head = "score\tsentence1\tsentence2\n"
    pairs.write_text(head + "".join(f"{n % 6}\t{a}\t{texts[0]}\n" for n, a in enumerate(texts)))
    sets = ("batch_size=4", "max_steps=2", "eval_every=1", "workers=1", "precision=fp32")
    small = [word for each in sets for word in ("--set", each)]
    recipe = ["--encoder", bert_folder, "--corpus", str(corpus), "--dev-pairs", str(pairs)]
    model = tmp_path / "train" / "model"
    commands = [
        ["prepare", "--input", text, "--encoder", bert_folder, "--output", corpus],
        ["train", "quickstart", *recipe, *small, "--output", tmp_path / "train"],
        ["tune", space, "--recipe", "quickstart", *recipe, *small,
         "--output", tmp_path / "tune"],
        ["evaluate", model, "--dev-pairs", pairs, "--output", tmp_path / "scores.json"],
        ["embed", model, "--input", text, "--output", vectors],
        ["search", vectors, "a man", "--text", text],
        ["geometry", model, "--dev-pairs", pairs, "--output", tmp_path / "geometry"],
        ["token-map", bert_folder, "--corpus", text, "--output", tmp_path / "map"],
        ["export", model, "--format", "folder", "--output", tmp_path / "export"],
        ["track-sync", tmp_path],
    ]  # fmt: skip
    printed = []
    for words in commands:
        status = main([str(word) for word in words])
        printed.append(capfd.readouterr())
        assert status == (1 if words[0] == "track-sync" else 0), (words[0], printed[-1].err)
    files = check_hidden(tmp_path, *(text for both in printed for text in both))
    assert {"untracked.jsonl", "report.html", "manifest.json", "README.md", "result.json"} <= {
        path.name for path in files
    }
    assert sum("http://***@127.0.0.1" in both.err for both in printed) == len(commands) - 1
