"""The metrics of `GET /metrics`, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class ServiceMetrics:
    """Counters of one service: requests, sentences, tokens, times and batch sizes."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "cotbert_requests", "Requests for embeddings by HTTP status", ["status"],
            registry=registry,
        )  # fmt: skip
        self.request_seconds = Histogram(
            "cotbert_request_seconds", "Seconds from a request's headers to its answer",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.sentences = Counter("cotbert_sentences", "Sentences embedded", registry=registry)
        self.tokens = Counter("cotbert_tokens", "Tokens read by the encoder", registry=registry)
        self.batch_sentences = Histogram(
            "cotbert_batch_sentences", "Sentences in a batch", buckets=SENTENCES, registry=registry
        )
        self.batch_seconds = Histogram(
            "cotbert_batch_seconds", "Seconds of a batch, with transfer to the replica and back",
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.waiting = Gauge(
            "cotbert_waiting_sentences", "Sentences of requests that are not answered yet",
            registry=registry,
        )  # fmt: skip

    def render(self) -> bytes:
        return generate_latest(self._registry)
