"""The HTTP application on a real socket, with a function in place of the replicas."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import uvicorn
from serving.http_client import get, half_a_body, open_socket, post, received
from waiting import until

from pipelines.serving import application, limits
from pipelines.serving import service as ending
from pipelines.serving.access_token import AccessToken
from pipelines.serving.application import Service
from pipelines.serving.batching import Batching
from pipelines.serving.requests import INPUT_TYPES, ServedModel

pytestmark = pytest.mark.real

MODEL = ServedModel("mine", dimension=2, normalized=False, max_texts=4)
TOKEN = "a-token-of-thirty-two-characters"


class Replicas:
    """Encodes a text to its length, with 10 more for a query; a text `slow` takes its time, and
    `break` an error."""

    def __init__(self):
        self.running, self.batches = 1, []
        self.at_once = self.most = 0

    async def encode(self, texts, queries):
        self.batches.append(texts)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        if "slow" in texts:
            await asyncio.sleep(0.3)
        self.at_once -= 1
        if "break" in texts:
            raise RuntimeError("the replica died")
        lengths = np.asarray([len(text) + 10 * queries for text in texts])
        return np.stack([lengths, -lengths], 1).astype(np.float32), lengths

    async def health(self):
        return self.running


class Stuck(Replicas):
    """Never finishes a batch."""

    async def encode(self, texts, queries):
        self.batches.append(texts)
        await asyncio.Event().wait()


@contextmanager
def service(replicas, token=None, max_body=1000, model=MODEL):
    """A running service; yields its port."""
    batching = Batching(100, max_tokens=100, template_tokens=2, wait_seconds=0.0, concurrent=1)
    made = Service(model, replicas.encode, replicas.health, token, max_body, batching)
    config = uvicorn.Config(
        application.application(made),
        http=limits.TimedProtocol,
        log_config=None,
        log_level="critical",
        timeout_graceful_shutdown=1,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def refused(answer, status, sentence):
    assert answer[0] == status
    assert sentence in answer[1]["error"]["message"]
    return True


def test_vectors_models_health_and_metrics():
    replicas = Replicas()
    with service(replicas) as port:
        status, answer = post(port, {"input": ["a", "bbb"], "model": "mine"})
        assert status == 200
        assert [one["embedding"] for one in answer["data"]] == [[1.0, -1.0], [3.0, -3.0]]
        assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
        (one,) = get(port, "/v1/models")[1]["data"]
        assert one["id"] == "mine"
        assert get(port, "/v1/models/mine") == (200, one)
        assert get(port, "/health") == (200, {"status": "ok", "replicas": 1})
        metrics = get(port, "/metrics")[1]
        assert 'cotbert_requests_total{status="200"} 1.0' in metrics
        assert "cotbert_sentences_total 2.0" in metrics
        assert "cotbert_tokens_total 4.0" in metrics
        replicas.running = 0
        assert get(port, "/health")[0] == 503


def test_queries_are_in_batches_of_their_own():
    replicas, model = Replicas(), replace(MODEL, query_prompt=True)
    with service(replicas, model=model) as port, ThreadPoolExecutor(4) as clients:
        bodies = [{"input": "slow"}] + [{"input": "a", "input_type": t} for t in INPUT_TYPES] * 2
        answers = [answer["data"] for _, answer in clients.map(partial(post, port), bodies)]
    assert [data[0]["embedding"][0] for data in answers] == [4.0, 1.0, 11.0, 1.0, 11.0]
    assert replicas.most == 1, "both kinds share the batches that the replicas take at a time"
    with service(replicas) as port:
        assert post(port, bodies[2])[1]["data"][0]["embedding"][0] == 1.0, "it has no such prompt"


def test_a_request_of_as_many_texts_as_allowed_is_answered(monkeypatch):
    monkeypatch.setattr(application, "MOST_WAITING_TEXTS", 3)
    with service(Replicas()) as port:
        assert post(port, {"input": ["a"] * 4})[0] == 200


def test_what_is_refused():
    with service(Replicas()) as port:
        assert refused(post(port, b"\x00\xff"), 400, "it is not UTF-8")
        assert refused(post(port, {"input": ["a"] * 5}), 400, "give at most 4")
        answer = post(port, {"input": "a", "\ud800": 1})
        assert refused(answer, 400, r"the field '\ud800' is unknown")
        assert answer[1]["error"]["param"] == r"\ud800"
        assert refused(post(port, {"input": "a" * 2000}), 413, "larger than 0.001 MB")
        # Without Content-Length: in chunks.
        assert refused(post(port, iter([b"a" * 600] * 3)), 413, "larger than 0.001 MB")
        for path in ("/nothing", "/v1/model", "/health/"):
            assert refused(get(port, path), 404, "is not known here: POST /v1/embeddings")
        for name in ("", "yours", "mine/x"):
            answer = get(port, f"/v1/models/{name}")
            assert refused(answer, 404, f"the model {name!r} is not served here, but 'mine'")
        assert refused(get(port, "/v1/embeddings"), 405, "POST /v1/embeddings")
        assert received(open_socket(port, b"\x16\x03\x01 no HTTP\r\n\r\n")).startswith(
            b"HTTP/1.1 400"
        )
        assert post(port, {"input": "a"})[0] == 200
        assert 'cotbert_requests_total{status="413"} 2.0' in get(port, "/metrics")[1]


def test_a_token_is_required_where_there_is_one():
    with service(Replicas(), AccessToken(TOKEN)) as port:
        good = {"Authorization": f"Bearer {TOKEN}"}
        assert post(port, {"input": "a"}, good)[0] == 200
        for wrong in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer \xe9"}):
            assert refused(post(port, {"input": "a"}, wrong), 401, "the token is missing or wrong")
        for path in ("/v1/models", "/metrics"):
            assert (get(port, path)[0], get(port, path, good)[0]) == (401, 200)
        assert get(port, "/health")[0] == 200


def test_a_client_that_closes_sees_why_its_large_body_is_refused(monkeypatch):
    """Closed while bytes arrive, the connection would be reset before the answer is read."""
    monkeypatch.setattr(limits, "DISCARD_SILENCE", 0.3)
    large = b"a" * 20_000_000
    with service(Replicas(), AccessToken(TOKEN)) as port:
        for _ in range(3):
            closing = {"Connection": "close", "Authorization": f"Bearer {TOKEN}"}
            assert refused(post(port, large, closing), 413, "larger than 0.001 MB")
            assert refused(post(port, large), 401, "the token is missing or wrong")
        started = time.monotonic()
        assert received(open_socket(port, half_a_body())).startswith(b"HTTP/1.1 401")
        head, _, rest = half_a_body(10**9).partition(b"{")[0].partition(b"\r\n")
        answer = received(
            open_socket(port, b"".join([head, b"\r\nExpect: 100-continue\r\n", rest]))
        )
        assert answer.startswith(b"HTTP/1.1 401"), "no invitation to send the body"
        assert time.monotonic() - started < 30


def test_an_error_of_a_replica_is_answered_and_shown(capfd, monkeypatch):
    with service(Replicas()) as port:
        with monkeypatch.context() as patch:
            patch.setattr(application, "ANSWER_SECONDS", 0.01)
            assert refused(post(port, {"input": "slow"}), 503, "send fewer texts in a request")
        assert refused(post(port, {"input": "break"}), 503, "the encoder failed on this request")
        assert post(port, {"input": "a"})[0] == 200
    assert "warning: a request failed: the replica died" in capfd.readouterr().err


def test_a_request_that_the_end_of_the_service_cuts_off_is_told_so():
    replicas = Stuck()
    with ThreadPoolExecutor(1) as threads:
        with service(replicas) as port:
            answer = threads.submit(post, port, {"input": "abc"})
            until(lambda: replicas.batches)
        assert refused(answer.result(10), 503, "the service is ending")


def test_a_signal_that_a_script_ignored_ends_the_service_as_any_other(monkeypatch):
    monkeypatch.setattr(ending, "nodes_watched", lambda report: nullcontext())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a script after `&`
    batching = Batching(100, max_tokens=100, template_tokens=2, wait_seconds=0.0, concurrent=1)
    replicas = Replicas()
    made = Service(MODEL, replicas.encode, replicas.health, None, 1000, batching)

    def interrupt(port):
        post(port, {"input": "a"})
        os.kill(os.getpid(), signal.SIGINT)

    try:
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
            threads.submit(interrupt, listener.getsockname()[1])
            with pytest.raises(KeyboardInterrupt, match="the service has ended"):
                ending._answer_until_stopped(application.application(made), listener)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_slow_client_is_answered_or_closed(monkeypatch):
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(application, "BODY_TIMES", {"silent": 0.5, "total": 5.0})
    with service(Replicas()) as port:
        silent = open_socket(port)
        half_headers = open_socket(port, b"POST /v1/embeddings HTTP/1.1\r\nHost:")
        half_body = open_socket(port, half_a_body())
        assert received(silent) == received(half_headers) == b""
        answer = received(half_body)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"the body did not arrive in time (12 bytes did)" in answer
        assert post(port, {"input": "a"})[0] == 200


def send_headers(connection):
    """Send headers for ever."""
    while True:
        connection.sendall(b"X-Name: " + b"x" * 8192 + b"\r\n")


def test_endless_headers_close_the_connection():
    with service(Replicas()) as port:
        connection = open_socket(port, b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            send_headers(connection)
        assert get(port, "/health")[0] == 200


def test_one_connection_serves_many_requests(monkeypatch):
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.2)
    request = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    with service(Replicas()) as port, open_socket(port, request) as connection:
        for _ in range(3):
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(0.3)  # an idle connection is closed by uvicorn's own, longer limit
            connection.sendall(request)


def whole_request(body):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def test_a_client_that_leaves_takes_its_texts_along():
    replicas = Replicas()
    with service(replicas) as port:
        slow = open_socket(port, whole_request(b'{"input": "slow"}'))
        time.sleep(0.1)
        open_socket(port, whole_request(b'{"input": "gone"}')).close()
        time.sleep(0.1)
        assert post(port, {"input": "after"})[0] == 200
        assert replicas.batches == [["slow"], ["after"]]
        slow.close()


def test_what_is_too_much_for_the_memory_is_refused(monkeypatch):
    monkeypatch.setattr(application, "MOST_BODIES", 1)
    with service(Replicas(), max_body=60) as port:
        slow = threading.Thread(target=post, args=(port, {"input": ["slow", "a" * 20]}))
        slow.start()
        time.sleep(0.1)
        assert refused(post(port, {"input": "a" * 30}), 503, "the service is busy")
        slow.join()
        assert post(port, {"input": "a" * 30})[0] == 200
