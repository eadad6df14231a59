"""Classify failures of Ray Train: a lost process or node, a lack of resources, or an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pipelines.runtime import ray_private
from pipelines.runtime.low_memory import out_of_memory

# Errors of gloo and NCCL on a worker that waits for a lost one. Ray reports a node's death about
# 15 s later, long after the other workers have failed with one of these.
_PEER_GONE = re.compile(r"gloo/transport|Dist(Backend|Network)Error|Connection (closed|reset) by")

# The class before the message of an error of cotbert's own, which says all.
_OWN_CLASS = re.compile(r"^cotbert_core\.[\w.]+: ")

# The lines about its settings that Ray Data appends to the error of a task.
_RETRIES = re.compile(r"\nFailed to .* attempts \(total backoff")


def is_loss(error: Any) -> bool:
    """Return whether a process or a node was lost.

    The other workers, which wait for it, then fail too, perhaps before Ray reports the loss.
    """
    failures = _failures(error).values()
    if any(_died(failure) for failure in (error, *failures, _of_start(error))):
        return True
    return bool(failures) and all(_PEER_GONE.search(str(failure)) for failure in failures)


def lacked_resources(error: Any) -> bool:
    """Return whether the workers did not start because the cluster lacked resources."""
    return ray_private.start_timed_out(_of_start(error))


def cause(error: Any) -> str:
    """Return the cause: the first worker that was lost, else the first that failed by itself."""
    failures = _failures(error)
    waited = {rank: bool(_PEER_GONE.search(str(failure))) for rank, failure in failures.items()}
    for worker in sorted(failures, key=lambda r: (not _died(failures[r]), waited[r], r)):
        if _died(failures[worker]):
            return f"worker {worker}: its process died (killed, out of memory, or a lost node)"
        if is_loss(error):
            return f"worker {worker}: another one died (killed, out of memory, or a lost node)"
        text = _RETRIES.split(str(failures[worker]))[0]
        lines = text.strip().splitlines() or [repr(failures[worker])]
        last = _OWN_CLASS.sub("", lines[-1])
        return f"worker {worker}: {out_of_memory(failures[worker]) or last}"
    if is_loss(error):
        return "a process of the training died (killed, out of memory, or a lost node)"
    return str(error).strip().splitlines()[-1]


def _failures(error: Any) -> dict[int, Any]:
    """Return the workers' failures by rank."""
    return getattr(error, "worker_failures", None) or {}


def _of_start(error: Any) -> Any:
    """Return the failure to start the workers, None if they had started."""
    return getattr(error, "controller_failure", None)


def _died(failure: Any) -> bool:
    from ray.exceptions import NodeDiedError, RayActorError

    return any(
        isinstance(one, (RayActorError, NodeDiedError)) or ray_private.start_failed(one)
        for one in _chain(ray_private.cause_of_death(failure))
    )


def _chain(error: Any) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while isinstance(error, BaseException):
        yield error
        error = error.__cause__
