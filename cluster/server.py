"""A cluster's job server, asked over HTTP before anything is sent to it.

Whatever is wrong with the address, the token or the versions is a UserError within seconds: Ray's
own client is imported only when a job is submitted.
"""

from __future__ import annotations

import json
import platform
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlsplit

from cotbert_core.errors import UserError
from pipelines.runtime.auth_token import TOKEN, default_path, find_token

ANSWER_SECONDS = 15.0


@dataclass(frozen=True)
class Node:
    """What one living node lends to tasks."""

    cpus: float
    gpus: float


class JobServer:
    """The job server at an http:// or https:// address."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"address is {address!r}: give the job server's, such as http://127.0.0.1:8265"
            )
        self.address = address.rstrip("/")
        token = find_token()
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> Any:
        """The JSON that the server answers with; None for what it does not have (404)."""
        request = urllib.request.Request(self.address + path, headers=self.headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise self._refused(error.code) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise UserError(
                f"no Ray job server answers at {self.address} ({reason}): check --address, or "
                "bring a cluster up by `cotbert cluster up`"
            ) from None

    def _refused(self, status: int) -> UserError:
        place = f"put the cluster's into {TOKEN} or {default_path()}"
        if status == 401:
            return UserError(f"the cluster at {self.address} asks for a token: {place}")
        if status == 403:
            return UserError(f"the cluster at {self.address} does not take the token: {place}")
        return UserError(
            f"the server at {self.address} answers with status {status}: check that it is a Ray "
            "cluster's job server, and its logs"
        )

    def check_versions(self) -> None:
        """UserError unless the cluster has this environment's Ray and minor version of Python."""
        told = self.get("/api/version")
        if not isinstance(told, dict) or "ray_version" not in told:
            raise UserError(
                f"the server at {self.address} is no Ray job server: give the address of the "
                "cluster's dashboard"
            )
        self._compare("Ray", told["ray_version"], version("ray"))
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

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        told = self.get("/api/v0/nodes?limit=10000&detail=1") or {}
        rows = ((told.get("data") or {}).get("result") or {}).get("result") or []
        alive = [row["resources_total"] for row in rows if row["state"] == "ALIVE"]
        return [Node(float(r.get("CPU", 0)), float(r.get("GPU", 0))) for r in alive]

    def job(self, name: str) -> dict[str, Any] | None:
        """What the server tells of a job; None where it knows none of that name."""
        told: dict[str, Any] | None = self.get(f"/api/jobs/{quote(name, safe='')}")
        return told

    def known_job(self, name: str) -> dict[str, Any]:
        """The same; UserError for an unknown one."""
        job = self.job(name)
        if job is None:
            raise UserError(
                f"the cluster at {self.address} knows no job {name!r}: see the id that submitting "
                "it printed; a cluster that was started anew has forgotten its jobs"
            )
        return job
