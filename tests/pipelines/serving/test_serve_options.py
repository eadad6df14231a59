"""What `cotbert serve` refuses before anything starts: options, addresses and tokens."""

from __future__ import annotations

import shutil
import socket

import pytest

from cotbert_core.encoder.backbone import CPU_BATCH_TOKENS, CUDA_BATCH_TOKENS
from cotbert_core.encoder.locations import PROMPTS_FILE
from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from pipelines.cli import main
from pipelines.options.declare import declared
from pipelines.runtime.placement import Node
from pipelines.serving import replicas, service
from pipelines.serving.access_token import find_access_token
from pipelines.serving.encoder_replica import FORWARD_PASSES
from pipelines.serving.limits import Admission
from pipelines.serving.options import ServeOptions, is_loopback
from pipelines.serving.requests import RequestError
from pipelines.serving.service import bound_socket, listen

TOKEN = "a-token-of-thirty-two-characters"


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv("COTBERT_SERVE_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--port 65536", "port is 65536: give a number from 0 to 65535"),
        ("--max-texts 0", "max_texts is 0: give at least 1"),
        ("--max-body-mb 0", "max_body_mb is 0"),
        ("--replicas 0", "replicas is 0"),
        ("--replicas 9999", "replicas is 9999, which would share "),
        ("--max-batch-wait-ms -1", "max_batch_wait_ms is -1: give at least 0"),
        ("--host 0.0.0.0", "host is '0.0.0.0', which others can reach, and there is no token"),
        ("--token-file none", "the token file 'none' cannot be read"),
        ("", "'./nothing' does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "./nothing", *words.split()]) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1


def test_a_replica_for_each_gpu_is_not_too_many(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(replicas, "live_nodes", lambda: [Node(cpus=1, gpus=2)])
    replicas.check_replicas(2)
    with pytest.raises(UserError, match=r"replicas is 3, which would share 1 core: give at most 2"):
        replicas.check_replicas(3)


@pytest.mark.parametrize(("template", "listed"), [(None, 2), ("[X]", 1)])
def test_what_of_a_folder_is_not_used_is_noted(tmp_path, bert_folder, capsys, template, listed):
    model = shutil.copytree(bert_folder, tmp_path / "model")
    write_json(model / "modules.json", [{"type": "x.Transformer", "path": ""}])
    named = {"prompts": {"document": "a man saw "}, "truncate_dim": 8}
    write_json(model / PROMPTS_FILE, named)
    service._opened(str(model), ServeOptions(str(model), template=template))
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == listed
    assert "`dimensions` in a request to `cotbert serve`" in notes[-1]


def test_a_port_that_is_taken_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} .*: give another --port"):
            bound_socket("127.0.0.1", port).__enter__()


def test_of_two_services_that_start_at_once_the_second_is_refused():
    with bound_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bound_socket("127.0.0.1", port) as second:
            listen(first, "127.0.0.1", port)
            with pytest.raises(UserError, match=f"port {port} .*: give another --port"):
                listen(second, "127.0.0.1", port)


def test_loopback():
    own = ["127.0.0.1", "127.9.9.9", "::1", "localhost"]
    others = ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org"]
    assert [host for host in (*own, *others) if is_loopback(host)] == own


def test_a_token_of_a_file_or_the_environment(tmp_path, monkeypatch, capsys):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    token = find_access_token(ServeOptions("m", host="0.0.0.0", token_file=file))
    assert token.admits(f"Bearer {TOKEN}")
    assert token.admits(f"bearer {TOKEN}")
    for wrong in (None, "", TOKEN, f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xff"):
        assert not token.admits(wrong)
    assert TOKEN not in repr(token)
    assert capsys.readouterr().err == ""
    file.chmod(0o644)
    find_access_token(ServeOptions("m", token_file=file))
    assert "others can read the token file" in capsys.readouterr().err
    monkeypatch.setenv("COTBERT_SERVE_TOKEN", TOKEN)
    assert find_access_token(ServeOptions("m", host="0.0.0.0")).admits(f"Bearer {TOKEN}")


@pytest.mark.parametrize(
    "token", ["short", "", "ünprintable-and-long-enough", "a\nb" * 20, "x" * 4097]
)
def test_a_token_that_cannot_be_used_is_refused(token, tmp_path):
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(UserError, match="token") as refused:
        find_access_token(ServeOptions("m", token_file=file))
    assert not token or token not in str(refused.value).replace(str(file), "")


def test_without_a_token_only_loopback_is_served():
    assert find_access_token(ServeOptions("m")) is None
    for host in ("0.0.0.0", "example.org"):
        with pytest.raises(UserError, match=f"host is '{host}', which others can reach, and there"):
            find_access_token(ServeOptions("m", host=host))


def test_the_help_gives_the_sizes_of_batches():
    (option,) = (one for one in declared(ServeOptions) if one.name == "batch-tokens")
    cpu, gpu = (FORWARD_PASSES * tokens for tokens in (CPU_BATCH_TOKENS, CUDA_BATCH_TOKENS))
    assert option.option.default == f"{cpu:,} tokens on a CPU, {gpu:,} on a GPU"


def test_what_is_held_is_released():
    admission = Admission(most_bytes=10, most_texts=2)
    with admission.holding("bytes") as hold:
        hold(6)
        hold(4)
        with admission.holding("bytes") as other, pytest.raises(RequestError, match="10 bytes are"):
            other(1)
        assert admission.held == {"bytes": 10, "texts": 0}
    assert admission.held == {"bytes": 0, "texts": 0}
