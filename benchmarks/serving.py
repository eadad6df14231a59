"""Compare `cotbert serve` for 32 clients with bare encode(), and measure the latency at half load.

The clients, the HTTP process, the replica and Ray share the machine's cores, so the rate includes
their cost. `python -m benchmarks.run --only serving` prints only these rows.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from benchmarks.harness import Row, first, interleave, least_cosine
from cotbert_core.encoder.locations import MINILM
from cotbert_core.sentence_encoder import SentenceEncoder

SENTENCES, CLIENTS = 2048, 32
TEXTS_PER_REQUEST = (1, 16)
# The least rate relative to bare encode().
TARGET = 0.7
LEAST_COSINE = 0.9999
END_SECONDS = 60


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 2,048 sentences, with 1 and with 16 per request."""
    chosen = first(texts, SENTENCES)
    encoder = SentenceEncoder.from_pretrained(MINILM)
    with running_service(MINILM) as port:
        tasks: dict[str, Callable[[int], object]] = {"bare": lambda _: encoder.encode(chosen)}
        for size in TEXTS_PER_REQUEST:
            requests = _requests(chosen, size)
            tasks[f"{size}"] = lambda _, requests=requests: asyncio.run(_all(port, requests))
        vectors = encoder.encode(chosen)
        checks = {size: _check(port, chosen, size, vectors) for size in TEXTS_PER_REQUEST}
        seconds = interleave(tasks, rounds)
        return [
            Row(
                f"serve {SENTENCES} sentences to {CLIENTS} clients, {size} in a request",
                "cotbert serve",
                "bare encode()",
                seconds[f"{size}"],
                seconds["bare"],
                TARGET,
                f"{checks[size]}, {_at_half_load(port, chosen, size, seconds[f'{size}'])}",
            )
            for size in TEXTS_PER_REQUEST
        ]


@contextmanager
def running_service(model: str) -> Iterator[int]:
    """Yield the port of a service of the command line, which ends with the block."""
    command = [sys.executable, "-m", "pipelines.cli", "serve", model, "--port", "0"]
    service = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = next((line for line in service.stderr if line.startswith("serving ")), "")
        found = re.search(r":(\d+)/v1/", line)
        if found is None:
            raise RuntimeError(f"the service did not start (status {service.wait()})")
        yield int(found[1])
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(END_SECONDS)


def _requests(texts: Sequence[str], size: int) -> list[bytes]:
    """Return HTTP requests of `size` texts each."""
    requests = []
    for start in range(0, len(texts), size):
        given = {"input": list(texts[start : start + size]), "encoding_format": "base64"}
        body = json.dumps(given).encode()
        head = f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        requests.append(head.encode() + body)
    return requests


class Client:
    """A connection that sends one request after another."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: bytes) -> bytes:
        """Return the answer's body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        return await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def _all(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Return the answers to all requests, which 32 clients send as fast as they are answered."""
    left = iter(enumerate(requests))
    answers: dict[int, bytes] = {}

    async def client() -> None:
        connection = Client(port)
        for number, request in left:
            answers[number] = await connection.send(request)
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return [answers[number] for number in range(len(requests))]


def _check(port: int, texts: Sequence[str], size: int, expected: np.ndarray) -> str:
    answers = asyncio.run(_all(port, _requests(texts, size)))
    found = [
        np.frombuffer(base64.b64decode(one["embedding"]), "<f4")
        for answer in answers
        for one in json.loads(answer)["data"]
    ]
    return f"least cosine {least_cosine(np.stack(found), expected, LEAST_COSINE):.6f}"


def _at_half_load(port: int, texts: Sequence[str], size: int, seconds: float) -> str:
    """Return the median and 99th percentile of a request's seconds at half the rate."""
    requests = _requests(texts, size)
    took = asyncio.run(_at_intervals(port, requests, 2 * seconds / len(requests)))
    median, late = np.percentile(took, [50, 99])
    return f"at half that load p50 {1000 * median:.0f} ms, p99 {1000 * late:.0f} ms"


async def _at_intervals(port: int, requests: Sequence[bytes], interval: float) -> list[float]:
    """Return the latency of each request from its scheduled time, whatever is still pending."""
    idle: list[Client] = []
    begun = time.perf_counter()

    async def one(number: int, request: bytes) -> float:
        due = begun + number * interval
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        client = idle.pop() if idle else Client(port)
        await client.send(request)
        idle.append(client)
        return time.perf_counter() - due

    took = await asyncio.gather(*(one(n, request) for n, request in enumerate(requests)))
    for client in idle:
        client.close()
    return took
