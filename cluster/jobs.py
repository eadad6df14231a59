"""Jobs on a cluster: a command of this project submitted, followed, asked after, stopped.

What can be wrong is looked for before anything is sent: the command, the address, the token, the
versions, the job's name, room for its workers.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import needs, words
from cluster.local import running
from cluster.package import absolute_variables, passed_variables, write_code
from cluster.server import JobServer
from cotbert_core.errors import UserError
from pipelines.progress import say

ADDRESS = "RAY_API_SERVER_ADDRESS"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
STOP_SECONDS = 60.0
_TALKATIVE = (
    "ray._private.runtime_env.packaging",
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Job:
    """A command that may be submitted as it stands."""

    name: str
    words: tuple[str, ...]
    variables: dict[str, str]
    notes: tuple[str, ...]


def find_address(given: str | None) -> str:
    """--address, else RAY_API_SERVER_ADDRESS, else the cluster of `cotbert cluster up`."""
    address = given or os.environ.get(ADDRESS)
    if address:
        return address
    local = running()
    if local is None:
        raise UserError(
            f"no cluster is named and none is up here: give --address, set {ADDRESS}, or bring "
            "one up by `cotbert cluster up`"
        )
    return local.address


def check(
    command: Sequence[str],
    server: JobServer,
    name: str | None,
    environment: Sequence[str] = (),
    may_grow: bool = False,
) -> Job:
    """The job that a command becomes; UserError for all that can be told to be wrong.

    environment: NAME, to pass this process's value on, or NAME=VALUE.
    may_grow: the cluster adds nodes, so what it has now does not count.
    """
    arguments = words.parse(command)
    need = needs.need_of(command[0], arguments)
    new, paths = words.absolute(command)
    asked = (key,) if (key := getattr(arguments, "key_variable", None)) else ()
    variables = absolute_variables({**passed_variables(os.environ, asked), **_given(environment)})
    _check_name(name)
    server.check_versions()
    if name is not None and (known := server.job(name)) is not None:
        raise UserError(
            f"a job {name!r} is there already ({known['status'].lower()}): give another --name"
        )
    if not may_grow:
        needs.check_room(command[0], need, server.nodes(), server.address)
    local = running()
    is_local = local is not None and local.address == server.address
    if is_local:
        variables.setdefault("MLFLOW_TRACKING_URI", f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    notes = _notes(paths, variables, is_local)
    return Job(name or _new_name(command[0]), tuple(new), variables, notes)


def _given(environment: Sequence[str]) -> dict[str, str]:
    given = {}
    for text in environment:
        name, sign, value = text.partition("=")
        if not name.isidentifier():
            raise UserError(f"--env is {text!r}: give NAME, or NAME=VALUE")
        if not sign and name not in os.environ:
            raise UserError(f"--env names {name}, which is not set here: set it, or give a value")
        given[name] = value if sign else os.environ[name]
    return given


def _check_name(name: str | None) -> None:
    if name is not None and not _NAME.fullmatch(name):
        raise UserError(
            f"the job's name is {name!r}: give letters, digits, '.', '_' and '-', at most 100"
        )


def _new_name(command: str) -> str:
    return f"{command}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _notes(paths: Sequence[str], variables: dict[str, str], is_local: bool) -> tuple[str, ...]:
    """What the user should know before the job runs elsewhere."""
    store = variables.get("MLFLOW_TRACKING_URI", "")
    notes = [f"passed on: {', '.join(sorted(variables))}"] if variables else []
    if is_local:
        return tuple(notes)
    if paths:
        notes.append(f"all nodes must see {', '.join(paths)}")
    if not store:
        notes.append("MLFLOW_TRACKING_URI is not set: the record of the run ends with its node")
    elif store.startswith("sqlite:") or re.match(r"https?://(localhost|127\.)", store):
        notes.append(f"MLFLOW_TRACKING_URI is {store}, which each node takes for its own")
    return tuple(notes)


def submit(job: Job, server: JobServer) -> None:
    """Send the code and start the job. UserError when another job has taken its name meanwhile."""
    client = _client(server)
    entrypoint = shlex.join(["python", "-m", "pipelines.cli", *job.words])
    with tempfile.TemporaryDirectory(prefix="cotbert-code-") as folder:
        write_code(Path(folder))
        environment = {"working_dir": folder, "env_vars": job.variables}
        try:
            client.submit_job(
                entrypoint=entrypoint,
                submission_id=job.name,
                runtime_env=environment,
                metadata={"command": shlex.join(["cotbert", *job.words])},
            )
        except RuntimeError as error:
            if "already exists" in str(error):
                raise UserError(
                    f"a job {job.name!r} is there already: give another --name"
                ) from None
            raise


def _client(server: JobServer) -> Any:
    """Ray's client, of this server whatever the environment names, and quiet."""
    with _without("RAY_ADDRESS", ADDRESS):
        import logging

        from ray.job_submission import JobSubmissionClient

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        return JobSubmissionClient(server.address, headers=dict(server.headers))


@contextmanager
def _without(*names: str) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def follow(name: str, server: JobServer) -> int:
    """Print a job's output until it ends; its exit status.

    An interruption ends the following alone: the job goes on.
    """
    server.known_job(name)
    try:
        asyncio.run(_print_output(_client(server), name))
        job = _wait_for_end(name, server, None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the job goes on: `{again('logs', name, server)}` shows it again, "
            f"`{again('stop', name, server)}` ends it"
        ) from None
    return exit_status(name, job)


async def _print_output(client: Any, name: str) -> None:
    async for text in client.tail_job_logs(name):
        print(text, end="", flush=True)


def _wait_for_end(name: str, server: JobServer, seconds: float | None) -> dict[str, Any]:
    """What the server tells of a job once it has ended, or after so long."""
    limit = None if seconds is None else time.monotonic() + seconds
    while (job := server.known_job(name))["status"] not in ENDED:
        if limit is not None and time.monotonic() > limit:
            break
        time.sleep(0.2)
    return job


def exit_status(name: str, job: dict[str, Any]) -> int:
    """0 for a job that succeeded; else its own status, or 1, after a line that says why."""
    if job["status"] == "SUCCEEDED":
        return 0
    code = job.get("driver_exit_code") or 1
    code = code if 0 < code < 256 else 1
    if job["status"] == "STOPPED":
        print(f"cotbert: the job {name} was stopped", file=sys.stderr)
    else:
        print(f"cotbert: the job {name} failed: {reason(job)}", file=sys.stderr)
    return code


def reason(job: dict[str, Any]) -> str:
    """Why a job failed, in a line: its own last error line, else what Ray tells."""
    lines = [line.strip() for line in (job.get("message") or "").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("cotbert: ")]
    if own:
        return own[-1].removeprefix("cotbert: ")
    return (lines or ["its log tells"])[-1]


def stop(name: str, server: JobServer) -> str:
    """End a job; what became of it, in a line."""
    status = server.known_job(name)["status"]
    if status in ENDED:
        return f"the job {name} had ended already: {status.lower()}"
    _client(server).stop_job(name)
    status = _wait_for_end(name, server, STOP_SECONDS)["status"]
    if status not in ENDED:
        raise RuntimeError(
            f"the job {name} has not ended {STOP_SECONDS:.0f} s after it was told to"
        )
    return f"the job {name} has ended: {status.lower()}"


def describe(name: str, server: JobServer) -> list[tuple[str, str]]:
    """A job's state, for a table."""
    job = server.known_job(name)
    rows = [("job", name), ("status", job["status"].lower())]
    rows.append(("command", (job.get("metadata") or {}).get("command") or job["entrypoint"]))
    if started := job.get("start_time"):
        ended = job.get("end_time") or time.time() * 1000
        rows.append(("started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started / 1000))))
        rows.append(("seconds", f"{(ended - started) / 1000:.0f}"))
    if job.get("driver_exit_code") is not None:
        rows.append(("exit status", str(job["driver_exit_code"])))
    if job["status"] == "FAILED":
        rows.append(("reason", reason(job)))
    return rows


def again(what: str, name: str, server: JobServer) -> str:
    """The command that finds a job again."""
    return f"cotbert submit --{what} {name} --address {server.address}"


def announce(job: Job, server: JobServer) -> None:
    for note in job.notes:
        say(f"note: {note}")
    say(f"submitted {job.name} to {server.address}")
    for what in ("status", "logs", "stop"):
        say(f"  {again(what, job.name, server)}")
