"""Follow, describe and stop submitted jobs."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from typing import Any

from cluster.server import JobServer, NoAnswerError
from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import redact
from pipelines.runtime.ending import typed
from pipelines.runtime.progress import print_output, say

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
POLL_SECONDS, STOP_SECONDS = 0.2, 60.0
# Time in which a lost connection, such as a `kubectl port-forward`, may come back.
LOST_SECONDS = 300.0
_UNKNOWN = (
    "whether the job {name} continues is not known: once the server answers, `{status}` tells; if "
    "the cluster's head was lost, the job ended, and the same command continues it on a new cluster"
)
# Colours and carriage returns in Ray's lines, which are removed rather than escaped.
_COLOUR, _RETURN = re.compile(r"\x1b\[[0-9;]*m"), re.compile(r"\r\n?")


def follow(name: str, server: JobServer) -> int:
    """Print a job's output until it ends, and return its exit status.

    An interruption only ends the output; the job continues. The status is 1 if the server has
    answered and then does not for LOST_SECONDS.
    """
    ended = server.known_job(name)["status"] in ENDED
    try:
        _show(name, server, ended)
        job = _wait_for_end(name, server, None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_left_alone(name, server)) from None
    except ConnectionError as error:
        say(f"cotbert: {error}")
        return 1
    return exit_status(name, job)


def _left_alone(name: str, server: JobServer) -> str:
    """Return a sentence on whether a job continues when nobody follows it any more."""
    try:
        server.known_job(name)
    except UserError:
        return _UNKNOWN.format(name=name, status=submit_command("status", name, server))
    return (
        f"the job continues: `{submit_command('logs', name, server)}` shows its output again, "
        f"`{submit_command('stop', name, server)}` stops it"
    )


def _show(name: str, server: JobServer, ended: bool) -> None:
    """Print a job's output while the job runs."""
    try:
        client = server.client()
        if ended:
            print_output(_clean(client.get_job_logs(name)), end="")
        else:
            asyncio.run(_print_output(client, name))
    except Exception as error:  # a connection error, which does not affect the job
        say(f"no more output of {name} can be shown ({error}); waiting for its end")


async def _print_output(client: Any, name: str) -> None:
    async for text in client.tail_job_logs(name):
        print_output(_clean(text), end="")


def _clean(text: str) -> str:
    """Return a job's output without colours and credentials, in whole lines."""
    return redact(_RETURN.sub("\n", _COLOUR.sub("", text)))


def _wait_for_end(name: str, server: JobServer, seconds: float | None) -> dict[str, Any]:
    """Return the server's record of a job once it has ended, or after `seconds`."""
    limit = None if seconds is None else time.monotonic() + seconds
    while (job := _answered(name, server))["status"] not in ENDED:
        if limit is not None and time.monotonic() > limit:
            break
        time.sleep(POLL_SECONDS)
    return job


def _answered(name: str, server: JobServer) -> dict[str, Any]:
    """Return the server's record of a job, once it answers; ConnectionError if it does not."""
    limit, waiting = time.monotonic() + LOST_SECONDS, False
    while True:
        try:
            return server.known_job(name)
        except NoAnswerError:
            if not waiting:
                waiting = True
                say(
                    f"the job server at {server.address} does not answer: waiting for up to "
                    f"{LOST_SECONDS / 60:.0f} minutes"
                )
            if time.monotonic() > limit:
                raise ConnectionError(
                    f"the job server at {server.address} has not answered for "
                    f"{LOST_SECONDS / 60:.0f} minutes; "
                    + _UNKNOWN.format(name=name, status=submit_command("status", name, server))
                ) from None
        time.sleep(POLL_SECONDS)


def exit_status(name: str, job: dict[str, Any]) -> int:
    """Return 0 for a job that succeeded, else its own status or 1, and print the reason."""
    if job["status"] == "SUCCEEDED":
        return 0
    code = job.get("driver_exit_code") or 1
    code = code if 0 < code < 256 else 1
    if job["status"] == "STOPPED":
        say(f"cotbert: the job {name} was stopped")
    else:
        say(f"cotbert: the job {name} failed: {reason(job)}")
    return code


def reason(job: dict[str, Any]) -> str:
    """Return why a job failed: its own last error line, else the signal that ended it, else the
    last line of Ray's message."""
    lines = [line.strip() for line in (job.get("message") or "").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("cotbert: ")]
    if errors:
        return errors[-1].removeprefix("cotbert: ")
    code = job.get("driver_exit_code") or 0
    if code < 0:  # its last line is one of its progress
        memory = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
        return (
            f"its process was ended by signal {-code} ({signal.strsignal(-code)}){memory}: submit "
            "the same command again, which continues what can be continued"
        )
    return (lines or ["see its log"])[-1]


def stop(name: str, server: JobServer) -> str:
    """Stop a job and return a sentence about its status."""
    status = server.known_job(name)["status"]
    if status in ENDED:
        return f"the job {name} had ended already: {status.lower()}"
    server.client().stop_job(name)
    status = _wait_for_end(name, server, STOP_SECONDS)["status"]
    if status not in ENDED:
        raise RuntimeError(
            f"the job {name} has not ended {STOP_SECONDS:.0f} s after the request to stop"
        )
    return f"the job {name} has ended: {status.lower()}"


def describe(name: str, server: JobServer) -> list[tuple[str, str]]:
    """Return (label, value) rows about a job's state."""
    job = server.known_job(name)
    rows = [("job", name), ("status", job["status"].lower())]
    command = (job.get("metadata") or {}).get("command") or job["entrypoint"]
    rows.append(("command", redact(command)))
    if started := job.get("start_time"):
        ended = job.get("end_time") or time.time() * 1000
        rows.append(("started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started / 1000))))
        rows.append(("seconds", f"{(ended - started) / 1000:.0f}"))
    if job.get("driver_exit_code") is not None:
        rows.append(("exit status", str(job["driver_exit_code"])))
    if job["status"] == "FAILED":
        rows.append(("reason", reason(job)))
    return rows


def submit_command(what: str, name: str, server: JobServer) -> str:
    """Return the command that shows or stops a job. what: status, logs or stop."""
    return typed(("submit", f"--{what}", name, "--address", server.address))
