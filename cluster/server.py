"""A cluster's job server, checked over HTTP before anything is sent to it.

A wrong address, token or version raises UserError within seconds; only `client` imports Ray.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import urllib.error
import urllib.request
from http.client import BadStatusLine, HTTPException
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlsplit

from cotbert_core.errors import UserError
from pipelines.runtime.auth_token import TOKEN, default_path, find_token

ANSWER_SECONDS = 15.0
# The environment variable with the address of a job server.
ADDRESS = "RAY_API_SERVER_ADDRESS"
# Hosts that are this machine and are never asked through a proxy; urllib compares the last form.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")


class NoAnswerError(UserError):
    """Nothing that is a job server answers at the address."""


class JobServer:
    """The job server at an http:// or https:// address."""

    def __init__(self, address: str) -> None:
        try:
            parts = urlsplit(address)
        except ValueError:  # http://[::1
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            name = ADDRESS if address == os.environ.get(ADDRESS) else "address"
            raise UserError(
                f"{name} is {address!r}: give the job server's address, such as "
                "http://127.0.0.1:8265"
            )
        if parts.hostname in LOOPBACK_HOSTS and not urllib.request.proxy_bypass(parts.hostname):
            # Read by urllib and by Ray's client; a proxy would receive the token.
            given = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
            os.environ["no_proxy"] = ",".join([given, *LOOPBACK_HOSTS])
        self.address = address.rstrip("/")
        token = find_token()
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> Any:
        """Return the server's JSON answer for a path, or None if there is none (404)."""
        request = urllib.request.Request(self.address + path, headers=self.headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise self._refused(error.code) from None
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            if isinstance(error, BadStatusLine) and not str(error).strip().isprintable():
                reason = "it does not speak HTTP"  # but gRPC, at a RAY_ADDRESS
            elif isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
                reason = "its answer is not JSON"
            raise NoAnswerError(
                f"no Ray job server answers at {self.address} ({reason}): check --address, or "
                "start a cluster with `cotbert cluster up`"
            ) from None

    def client(self) -> Any:
        """Return Ray's client for this server; it ignores the addresses in the environment."""
        addresses = ("RAY_ADDRESS", ADDRESS)
        saved = {name: os.environ.pop(name) for name in addresses if name in os.environ}
        try:
            from ray.job_submission import JobSubmissionClient

            # Some of Ray's loggers set a level of their own; all of them share these handlers.
            for handler in logging.getLogger("ray").handlers:
                handler.setLevel(logging.WARNING)
            return JobSubmissionClient(self.address, headers=dict(self.headers))
        finally:
            os.environ.update(saved)

    def _refused(self, status: int) -> UserError:
        place = f"put the cluster's token into {TOKEN} or {default_path()}"
        if status == 401:
            return UserError(f"the cluster at {self.address} requires a token: {place}")
        if status == 403:
            return UserError(f"the cluster at {self.address} rejects the token: {place}")
        # A proxy answers 502 or 503 for a server that may come back.
        kind = NoAnswerError if status >= 500 else UserError
        return kind(
            f"the server at {self.address} answers with status {status}: check that it is a Ray "
            "cluster's job server, and its logs"
        )

    def check_versions(self) -> None:
        """Raise UserError unless the cluster has this version of Ray and this minor Python."""
        answer = self.get("/api/version")
        if not isinstance(answer, dict) or "ray_version" not in answer:
            raise UserError(
                f"the server at {self.address} is not a Ray job server: give the address of the "
                "cluster's dashboard"
            )
        self._compare("Ray", answer["ray_version"], version("ray"))
        metadata = (self.get("/api/v0/cluster_metadata") or {}).get("data") or {}
        python = str(metadata.get("pythonVersion", platform.python_version()))
        here = ".".join(platform.python_version_tuple()[:2])
        self._compare("Python", ".".join(python.split(".")[:2]), here)

    def _compare(self, what: str, there: str, here: str) -> None:
        if there != here:
            raise UserError(
                f"the cluster at {self.address} runs {what} {there} and this is {what} {here}: "
                "submit from an environment with the cluster's version, or change its image"
            )

    def live_nodes(self) -> int:
        """Return the number of nodes that are alive."""
        answer = self.get("/api/v0/nodes?limit=10000&detail=1") or {}
        rows = ((answer.get("data") or {}).get("result") or {}).get("result") or []
        return sum(row["state"] == "ALIVE" for row in rows)

    def job(self, name: str) -> dict[str, Any] | None:
        """Return the server's record of a job; None if it has no job of that name."""
        answer: dict[str, Any] | None = self.get(f"/api/jobs/{quote(name, safe='')}")
        return answer

    def known_job(self, name: str) -> dict[str, Any]:
        """Return the server's record of a job; UserError if it has no job of that name."""
        job = self.job(name)
        if job is None:
            raise UserError(
                f"the cluster at {self.address} has no job {name!r}: use the name that `cotbert "
                "submit` printed; a restarted cluster forgets its jobs"
            )
        return job
