"""Submit a command of this project as a job to a cluster.

The command line, the address, the token, the versions and the job's name are checked before
anything is sent. Paths, settings and the capacity for workers are checked by the job.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.local import running
from cluster.log_stream import submit_command
from cluster.package import absolute_variables, passed_variables, write_code
from cluster.server import ADDRESS, JobServer
from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import redact, without_credentials
from pipelines.recording.store import OWN_STORE
from pipelines.recording.tracking import COMMIT, commit
from pipelines.runtime.progress import say
from pipelines.runtime.training_capacity import MAY_GROW
from pipelines.storage.paths import SUBMITTED_FROM, absolute_store

# Commands that are not submitted.
LOCAL = ("cluster", "submit")
# Returns the values that a command line gives; a mistake in it ends as in `cotbert` itself.
Parse = Callable[[Sequence[str]], Mapping[str, Any]]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Submission:
    """A command that is ready to be submitted.

    words: the command's arguments. variables: environment variables to pass on. notes: sentences
    to show to the user.
    """

    name: str
    words: tuple[str, ...]
    variables: dict[str, str]
    notes: tuple[str, ...]


def find_address(given: str | None) -> str:
    """Return --address, else RAY_API_SERVER_ADDRESS, else the address of the local cluster."""
    address = given or os.environ.get(ADDRESS)
    if address:
        return address
    local = running()
    if local is None:
        raise UserError(
            f"no cluster is given and none runs on this machine: give --address, set {ADDRESS}, or "
            "start a cluster with `cotbert cluster up`"
        )
    return local.address


def check(
    command: Sequence[str],
    parse: Parse,
    server: JobServer,
    name: str | None,
    environment: Sequence[str] = (),
    may_grow: bool = False,
) -> Submission:
    """Return the job for a command; UserError if anything is wrong with it.

    environment: NAME=VALUE, or NAME to pass on this process's value. may_grow: whether the cluster
    autoscales, so the job does not look whether it is large enough now.
    """
    given = _parsed(command, parse)
    key_variables = (given["key_variable"],) if "key_variable" in given else ()
    variables = absolute_variables(
        {**passed_variables(os.environ, key_variables), **_given(environment)}
    )
    if may_grow:
        variables.setdefault(MAY_GROW, "1")
    server.check_versions()
    _check_name(name, command, server)
    local = running()
    is_local = local is not None and local.address == server.address
    notes = _notes(variables, is_local)
    if is_local and not variables.get("MLFLOW_TRACKING_URI"):
        variables["MLFLOW_TRACKING_URI"] = absolute_store(OWN_STORE)
    made = f"{command[0]}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    return Submission(name or made, tuple(command), variables, notes)


def _parsed(words: Sequence[str], parse: Parse) -> Mapping[str, Any]:
    """Return the values of the command's options."""
    if words[0] == "cotbert":
        raise UserError("the command begins with 'cotbert': leave that word out")
    if words[0] in LOCAL:
        raise UserError(f"{words[0]!r} runs on this machine: submit another command")
    given = parse(words)
    if words[0] == "quickstart" and "output" not in given:
        raise UserError("quickstart has no --output: give a folder that outlives the job")
    return given


def _check_name(name: str | None, command: Sequence[str], server: JobServer) -> None:
    if name is None:
        return
    if not _NAME.fullmatch(name):
        raise UserError(
            f"the job's name is {name!r}: give letters, digits, '.', '_' and '-', at most 100"
        )
    if (existing := server.job(name)) is not None:
        earlier_command = (existing.get("metadata") or {}).get("command")
        is_same, status = earlier_command == _line(command), existing["status"]
        unfinished = is_same and status in ("FAILED", "STOPPED")
        raise UserError(
            f"a job {name!r} already exists ({status.lower()}), with "
            f"{'the same' if is_same else 'another'} command: give another --name"
            + ", under which the command continues what is unfinished in its --output"
            * unfinished
        )


def _given(environment: Sequence[str]) -> dict[str, str]:
    given = {}
    for text in environment:
        name, sign, value = text.partition("=")
        if not name.isidentifier():
            raise UserError(f"--env is {text!r}: give NAME, or NAME=VALUE")
        if not sign and name not in os.environ:
            raise UserError(f"--env is {name}, which is not set here: set it, or give NAME=VALUE")
        given[name] = value if sign else os.environ[name]
    return given


def _notes(variables: Mapping[str, str], is_local: bool) -> tuple[str, ...]:
    """Return notes for the user about the job's environment."""
    store = variables.get("MLFLOW_TRACKING_URI", "")
    notes = [f"passed on: {', '.join(sorted(variables))}"] if variables else []
    if is_local:
        unset = f"MLFLOW_TRACKING_URI is not set here: the run is in {absolute_store(OWN_STORE)}"
        return tuple(notes if store else [*notes, unset])
    notes.append(f"all nodes must see the command's paths; relative ones mean {Path.cwd()}")
    if not store:
        notes.append(
            "MLFLOW_TRACKING_URI is not set here: unless the cluster sets it, the record of the "
            "run is lost with its node"
        )
    elif store.startswith("sqlite:") or re.match(r"https?://([^/@]*@)?(localhost|127\.)", store):
        notes.append(f"MLFLOW_TRACKING_URI is {redact(store)}, which is local to each node")
    return tuple(notes)


def submit(job: Submission, server: JobServer) -> None:
    """Send the code and start the job; UserError if another job took its name in the meantime."""
    client = server.client()
    entrypoint = shlex.join(["python", "-m", "pipelines.cli", *job.words])
    with tempfile.TemporaryDirectory(prefix="cotbert-code-") as folder:
        write_code(Path(folder))
        variables = {**job.variables, SUBMITTED_FROM: os.getcwd(), COMMIT: commit()}
        environment = {"working_dir": folder, "env_vars": variables}
        try:
            client.submit_job(
                entrypoint=entrypoint,
                submission_id=job.name,
                runtime_env=environment,
                metadata={"command": _line(job.words)},
            )
        except RuntimeError as error:
            if "already exists" in str(error):
                raise UserError(f"a job {job.name!r} already exists: give another --name") from None
            raise


def _line(words: Sequence[str]) -> str:
    """Return the command as the user typed it, for display without credentials in addresses."""
    return shlex.join(["cotbert", *without_credentials(words)])


def announce(job: Submission, server: JobServer) -> None:
    for note in job.notes:
        say(f"note: {note}")
    say(f"submitted {job.name} to {server.address}")
    for what in ("status", "logs", "stop"):
        say(f"  {submit_command(what, job.name, server)}")
