"""A wrong address, token, version or job is refused at once, in one sentence."""

from __future__ import annotations

import socket
import threading
from urllib.request import proxy_bypass

import pytest
from job_server import FakeServer, answers

from cluster.server import JobServer, NoAnswerError
from pipelines.cli import main
from pipelines.runtime.auth_token import default_path

TRAIN = ("train", "quickstart", "--corpus", "/corpus", "--output", "/out")
JOB = {"status": "SUCCEEDED", "entrypoint": "python", "driver_exit_code": 0}


@pytest.fixture
def refusal(own_place, capsys):
    """Return the one sentence of a command that ends with status 2."""

    def submit(*words, address=None, command=TRAIN):
        place = ["--address", address] if address else []
        assert main(["submit", *place, *words, *(("--", *command) if command else ())]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        return captured.err

    return submit


def test_a_server_that_fits_is_taken(own_place):
    with FakeServer(answers(), token="t") as fake:
        default_path().parent.mkdir(parents=True)
        default_path().write_text("t\n")
        server = JobServer(fake.url + "/")
        server.check_versions()
        assert server.address == fake.url
        assert server.live_nodes() == 2
        assert server.job("none") is None


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(own_place, monkeypatch):
    """It would receive the token."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", "example.org")
    with FakeServer(answers(), token="t") as fake, FakeServer(answers()) as proxy:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
        monkeypatch.setenv("http_proxy", proxy.url)
        server = JobServer(fake.url)
        server.check_versions()
        server.client()
    assert proxy.asked == []
    assert proxy_bypass("example.org")
    assert proxy_bypass("[::1]:8265")
    assert not proxy_bypass("example.com")


def test_no_cluster_at_the_address(refusal):
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        message = refusal(address=address)
    assert f"no Ray job server answers at {address} ([Errno 111] Connection refused)" in message


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"-ERR unknown\r\n", "-ERR unknown"),
        # The port of Ray itself, which speaks gRPC, whose bytes are no reason.
        (b"\0\0\x18\4\0\0\0\0\0\0\4\0@\0\0\r\n", "it does not speak HTTP)"),
    ],
)
def test_a_port_that_does_not_speak_http(refusal, said, reason):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=lambda: server.accept()[0].sendall(said)).start()
        message = refusal(address=address)
    assert f"no Ray job server answers at {address} ({reason}" in message


def test_a_host_name_that_cannot_be_one_is_no_answer(refusal, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    assert "(encoding with 'idna' codec failed" in refusal(address="http://a..b:1")


def test_an_address_that_is_none(refusal):
    for address in ("127.0.0.1:6379", "ray://127.0.0.1:10001", "http://", "http://[::1", "up"):
        assert f"address is {address!r}: give the job server's" in refusal(address=address)
    assert "no cluster is given and none runs on this machine" in refusal()


@pytest.mark.parametrize(
    ("token", "text"), [(None, "requires a token: put"), ("other", "rejects the token: put")]
)
def test_the_token(refusal, monkeypatch, token, text):
    if token:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with FakeServer(answers(), token="right") as fake:
        message = refusal(address=fake.url)
    assert text in message
    assert "right" not in message


@pytest.mark.parametrize(
    ("responses", "text"),
    [
        (answers(ray="2.9.3"), "runs Ray 2.9.3 and this is Ray 2."),
        (answers(python="3.8.19"), "runs Python 3.8 and this is Python 3."),
        ({}, "is not a Ray job server"),
        ({"/api/version": (200, ["a"])}, "is not a Ray job server"),
        ({"/api/version": (200, b"<html>")}, "(its answer is not JSON)"),
        ({"/api/version": (503, {})}, "answers with status 503"),
    ],
)
def test_another_server(refusal, responses, text):
    with FakeServer(responses) as fake:
        assert text in refusal(address=fake.url)


def test_a_proxy_without_its_server_may_get_it_back(own_place):
    with FakeServer({"/api/jobs/mine": (502, {})}) as fake, pytest.raises(NoAnswerError):
        JobServer(fake.url).known_job("mine")


def test_an_unknown_job(refusal):
    with FakeServer(answers(jobs={"known": JOB})) as fake:
        for question in ("--status", "--logs", "--stop"):
            message = refusal(question, "knwon", address=fake.url, command=())
            assert f"the cluster at {fake.url} has no job 'knwon'" in message


def test_a_job_of_that_name_is_there(refusal):
    metadata = {"command": " ".join(("cotbert", *TRAIN))}
    kinds = ("SUCCEEDED", "RUNNING", "FAILED", "STOPPED")
    jobs = {status: {**JOB, "status": status, "metadata": metadata} for status in kinds}
    with FakeServer(answers(jobs=jobs)) as fake:
        for status in kinds:
            for more, which in (((), "the same"), (("--set", "seed=1"), "another")):
                message = refusal("--name", status, address=fake.url, command=(*TRAIN, *more))
                state = f"'{status}' already exists ({status.lower()})"
                assert f"{state}, with {which} command: give" in message
                continues = "continues what is unfinished in its --output" in message
                assert continues == (status in ("FAILED", "STOPPED") and not more)


def test_a_jobs_state_is_reported(own_place, capsys):
    job = {
        "status": "FAILED",
        "entrypoint": "python -m pipelines.cli embed",
        "metadata": {"command": "cotbert embed"},
        "message": "failed, last available logs:\nline\ncotbert: model '/x' is missing\n",
        "driver_exit_code": 2,
        "start_time": 1_000,
        "end_time": 13_000,
    }
    with FakeServer(answers(jobs={"mine": job})) as fake:
        assert main(["submit", "--status", "mine", "--address", fake.url]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (rows["status"], rows["command"]) == ("failed", "cotbert embed")
    assert (rows["seconds"], rows["reason"]) == ("12", "model '/x' is missing")
