"""`cotbert serve` as a user starts it: vectors, clients of all kinds, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import psutil
import pytest
from listening import listeners
from process_tree import below
from serving.http_client import get, half_a_body, open_socket, post, received
from waiting import until

from cotbert_core import Template
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.runtime.processes import MARK, find_marked

pytestmark = [pytest.mark.ray_local, pytest.mark.real, pytest.mark.timeout(600)]

TOKEN = "a-token-of-thirty-two-characters"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
REPLICA = "ray::ServeRepli"  # Linux keeps 15 characters of a name


class Service:
    """A running command, its port, its processes and what it printed."""

    def __init__(self, *words, **variables):
        self.mark = f"serve-{os.getpid()}-{time.monotonic_ns()}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.cli", "serve", *words],
            env={**os.environ, MARK: self.mark, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.printed = self.process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1/embeddings", self.printed)
        assert found, self.printed + self.process.communicate()[1]
        self.port = int(found[1])

    @property
    def pids(self):
        return find_marked(self.mark)

    def stop(self, number):
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output + errors


@pytest.fixture(scope="module")
def folder(bert_folder, tmp_path_factory):
    """A model with a prompt for queries."""
    plain = SentenceEncoder.from_pretrained(bert_folder)
    pooling = replace(plain.pooling, query=Template("a man wants [X]"))
    made = tmp_path_factory.mktemp("served") / "model"
    SentenceEncoder(plain.backbone, pooling, plain.head).save_pretrained(made)
    return str(made)


@pytest.fixture(scope="module")
def service(folder):
    words = (folder, "--port", "0", "--precision", "fp32", "--max-body-mb", "2")
    running = Service(*words, COTBERT_SERVE_TOKEN=TOKEN)
    yield running
    running.process.kill()


@pytest.fixture(scope="module")
def encoder(folder):
    return SentenceEncoder.from_pretrained(folder)


def embed(service, texts, **fields):
    status, answer = post(service.port, {"input": texts, **fields}, HEADERS)
    assert status == 200, answer
    return np.asarray([one["embedding"] for one in answer["data"]], np.float32), answer["usage"]


def test_vectors_are_those_of_encode_whatever_else_is_in_the_batch(service, encoder, sentences):
    """Forty requests at a time of one to many texts, empty and long ones among them."""
    texts = [*sentences, "", "a man walks " * 60, *(f"{s} again" for s in sentences)]
    requests = [[texts[n % len(texts)]] * (1 + n % 3) + texts[: n % 5] for n in range(120)]
    requests.append(texts * 40)
    expected = {text: encoder.encode([text], precision="fp32")[0] for text in texts}
    with ThreadPoolExecutor(40) as clients:
        answers = list(clients.map(lambda request: embed(service, request)[0], requests))
    for request, vectors in zip(requests, answers, strict=True):
        wanted = np.stack([expected[text] for text in request])
        assert np.allclose(vectors, wanted, atol=2e-5)
    assert not np.allclose(expected[texts[0]], expected[texts[1]], atol=1e-2)
    sizes = get(service.port, "/metrics", HEADERS)[1]
    requests_seen = float(re.search(r"cotbert_request_seconds_count (\S+)", sizes)[1])
    batches = float(re.search(r"cotbert_batch_sentences_count (\S+)", sizes)[1])
    assert requests_seen >= len(requests)
    assert batches < requests_seen  # requests were joined


def test_queries_get_the_prompt_of_the_model(service, encoder):
    texts = ["two dogs run", "oil"]
    vectors, usage = embed(service, texts, input_type="query")
    expected = encoder.for_queries.encode(texts, precision="fp32")
    assert np.allclose(vectors, expected, atol=2e-5)
    assert not np.allclose(vectors, encoder.encode(texts, precision="fp32"), atol=1e-2)
    more = encoder.for_queries.bound.length - encoder.bound.length
    assert usage["prompt_tokens"] == embed(service, texts)[1]["prompt_tokens"] + 2 * more
    assert more > 0


def test_usage_counts_the_tokens_that_are_read(service, encoder):
    read = encoder.tokenize(["two dogs run", "oil"]).lengths + encoder.bound.length
    assert embed(service, ["two dogs run", "oil"])[1]["prompt_tokens"] == read.sum()
    cut = embed(service, ["a man walks " * 1000])[1]["prompt_tokens"]
    assert cut == encoder.max_length + encoder.bound.length


def test_bad_clients_leave_the_service_alive(service):
    def check_alive():
        assert post(service.port, {"input": "Two dogs run."}, HEADERS)[0] == 200

    bad = {413: iter([b"a" * 1_000_000] * 100), 400: os.urandom(100_000)}
    for status, body in (*bad.items(), (413, b"a" * 100_000_000)):
        code, answer = post(service.port, body, HEADERS)
        assert code == status
        assert len(answer["error"]["message"]) > 20
    token = f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    half = half_a_body().replace(b"\r\n", token, 1)
    connections = [open_socket(service.port, half if n % 2 else b"") for n in range(1000)]
    check_alive()
    with ThreadPoolExecutor(50) as readers:
        answers = list(readers.map(received, connections))
    assert {answer[:12] for answer in answers} == {b"", b"HTTP/1.1 408"}
    for connection in connections:
        connection.close()
    check_alive()


def test_it_listens_on_loopback_and_hides_the_token(service):
    assert get(service.port, "/health") == (200, {"status": "ok", "replicas": 1})
    assert post(service.port, {"input": "a"}, {"Authorization": "Bearer wrong"})[0] == 401
    found = list(listeners(service.pids))
    assert service.port in {one.port for one in found}
    assert [one for one in found if not one.on_loopback] == []
    for pid in service.pids:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            assert TOKEN.encode() not in file.read()


def test_a_replica_that_dies_is_started_again(service):
    (replica,) = below(service.process.pid, REPLICA)
    os.kill(replica, signal.SIGKILL)
    limit = time.monotonic() + 120
    while (status := post(service.port, {"input": "Two dogs run."}, HEADERS)[0]) != 200:
        assert status == 503
        assert time.monotonic() < limit
        time.sleep(0.2)
    assert below(service.process.pid, REPLICA) != [replica]


def test_it_ends_at_sigterm_and_leaves_no_process(service):
    known = service.pids
    assert len(known) > 3
    status, printed = service.stop(signal.SIGTERM)
    assert status == 143
    # Before it Ray reports the replica that was killed.
    assert printed.splitlines()[-1] == "cotbert: stopped by SIGTERM; the service has ended"
    assert TOKEN not in service.printed + printed
    until(lambda: not service.pids, 10)


def test_it_ends_with_status_1_when_ray_has_died(folder):
    """So that whatever started it starts it again."""
    service = Service(folder, "--port", "0")
    try:
        (raylet,) = (pid for pid in service.pids if psutil.Process(pid).name() == "raylet")
        os.kill(raylet, signal.SIGKILL)
        printed = service.process.communicate(timeout=120)[1]
    finally:
        service.process.kill()
    assert service.process.returncode == 1
    assert "Ray has died, which ran the model: start the service again" in printed
    assert not service.pids
