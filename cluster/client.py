"""Ray's client for a job server."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.server import JobServer

ADDRESS = "RAY_API_SERVER_ADDRESS"


def job_client(server: JobServer) -> Any:
    """Return a client for this server that ignores the addresses in the environment."""
    with _without("RAY_ADDRESS", ADDRESS):
        from ray.job_submission import JobSubmissionClient

        # Some of Ray's loggers set a level of their own; all of them share these handlers.
        for handler in logging.getLogger("ray").handlers:
            handler.setLevel(logging.WARNING)
        return JobSubmissionClient(server.address, headers=dict(server.headers))


@contextmanager
def _without(*names: str) -> Iterator[None]:
    saved = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(saved)
