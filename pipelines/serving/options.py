"""The options of `cotbert serve`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cotbert_core.errors import UserError
from pipelines.options import shared
from pipelines.options.checks import at_least
from pipelines.options.declare import RESOURCES, SERVICE, Option

TOKEN_VARIABLE = "COTBERT_SERVE_TOKEN"
MOST_PORT = 65_535
# Room for 2,048 texts of 4,000 characters, about 1,000 tokens each.
MAX_BODY_MB = 8


@dataclass(frozen=True)
class ServeOptions:
    """The model, the address, the limits of a request, and the batching of texts."""

    model: Annotated[str, shared.MODEL_ARGUMENT]
    host: str = Option(
        "listen at this address; an address other than loopback needs a token",
        "HOST",
        group=SERVICE,
    ).field("127.0.0.1")
    port: int = Option("listen at this port; 0 picks a free one", "PORT", group=SERVICE).field(8000)
    token_file: Path | None = Option(
        "require the token in this file as `Authorization: Bearer TOKEN` in every request",
        "FILE",
        group=SERVICE,
        default=f"the token in {TOKEN_VARIABLE}, or no token if that is not set",
    ).field(None)
    max_texts: int = Option(
        "refuse a request with more texts", "N", group=SERVICE, unit="texts"
    ).field(2048)
    max_body_mb: int = Option(
        "refuse a request with a larger body", "N", group=SERVICE, unit="megabytes"
    ).field(MAX_BODY_MB)
    replicas: int | None = Option(
        "run this many copies of the model",
        "N",
        group=RESOURCES,
        unit="replicas",
        default="1 replica for each GPU, or 1 for each machine without GPUs",
    ).field(None)
    batch_tokens: int | None = Option(
        "join the texts of waiting requests into batches of about this many tokens",
        "N",
        group=RESOURCES,
        unit="tokens",
        default="8,192 tokens on a CPU, 262,144 on a GPU",
    ).field(None)
    max_batch_wait_ms: int = Option(
        "let an idle replica wait at most this long for more texts to fill a batch",
        "N",
        group=RESOURCES,
        unit="milliseconds",
    ).field(20)
    template: str | None = shared.TEMPLATE.field(None)
    readout: shared.Readout = None
    precision: shared.PrecisionOrInt8 = "auto"
    backend: shared.EncoderBackend = "auto"

    def __post_init__(self) -> None:
        at_least(self, 1, "max_texts", "max_body_mb", "replicas", "batch_tokens")
        at_least(self, 0, "max_batch_wait_ms")
        if not 0 <= self.port <= MOST_PORT:
            raise UserError(f"port is {self.port}: give a number from 0 to {MOST_PORT}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a service that listens at `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
