"""cotbert submit: its options, and the calls of its functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cotbert_core.errors import UserError
from pipelines.options.declare import Option
from pipelines.runtime.progress import print_output

if TYPE_CHECKING:
    from cluster.server import JobServer

JOB, SUBMITTED, SERVER = "a submitted job", "the job to submit", "the cluster"


@dataclass(frozen=True, kw_only=True)
class Submit:
    """parse: returns the values that `command` gives; pipelines.cli passes it."""

    command: tuple[str, ...] = Option(
        "run this cotbert command with its options, given after `--`; all nodes must see its "
        "paths, and relative ones refer to the current folder",
        "COMMAND",
        positional=True,
        default="none, with one of --status, --logs and --stop",
    ).field(())
    address: str | None = Option(
        "use the job server at this address",
        "URL",
        group=SERVER,
        default="RAY_API_SERVER_ADDRESS, else the cluster of `cotbert cluster up`",
    ).field(None)
    name: str | None = Option(
        "give the job this name", "ID", group=SUBMITTED, default="made from the time"
    ).field(None)
    env: tuple[str, ...] = Option(
        "set this environment variable for the job; may be repeated; the job also gets those "
        "of COTBERT_CACHE, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE, OPENAI_API_KEY, the variable "
        "of --key-variable, MLFLOW_REGISTRY_URI, MLFLOW_TRACKING_* and AWS_* that are set here, "
        "except names of files and profiles",
        "NAME[=VALUE]",
        group=SUBMITTED,
        append=True,
        default="no other variables",
    ).field(())
    may_grow: bool = Option(
        "submit even if the cluster has too few cores now, because it autoscales", group=SUBMITTED
    ).field(False)
    no_wait: bool = Option(
        "return at once instead of showing the job's output until it ends", group=SUBMITTED
    ).field(False)
    status: str | None = Option(
        "show the state of this job", "ID", group=JOB, exclusive="known", default="no job"
    ).field(None)
    logs: str | None = Option(
        "show this job's output until it ends", "ID", group=JOB, exclusive="known", default="no job"
    ).field(None)
    stop: str | None = Option(
        "stop this job", "ID", group=JOB, exclusive="known", default="no job"
    ).field(None)
    parse: Callable[[Sequence[str]], Mapping[str, Any]]

    def run(self) -> None:
        from cluster import jobs, log_stream
        from cluster.server import JobServer

        _check(self)
        server = JobServer(jobs.find_address(self.address))
        if self.command:
            _submit(self, server)
            return
        server.check_versions()
        if self.status:
            from pipelines.commands.printing import print_texts

            print_texts(log_stream.describe(self.status, server))
        elif self.stop:
            print_output(log_stream.stop(self.stop, server))
        else:
            _end(log_stream.follow(str(self.logs), server))


def _check(given: Submit) -> None:
    """Raise UserError unless either a command or a known job is given."""
    known = given.status or given.logs or given.stop
    if known and given.command:
        raise UserError("--status, --logs and --stop take no command: leave one out")
    if known and (given.name or given.env or given.may_grow or given.no_wait):
        raise UserError(
            "--name, --env, --may-grow and --no-wait are for a new job: leave them out, or "
            "leave out --status, --logs and --stop"
        )
    if not known and not given.command:
        raise UserError("no command is given: write it after `--`, as in `-- train RECIPE ...`")


def _submit(given: Submit, server: JobServer) -> None:
    from cluster import jobs, log_stream

    job = jobs.check(given.command, given.parse, server, given.name, given.env, given.may_grow)
    jobs.submit(job, server)
    jobs.announce(job, server)
    if given.no_wait:
        print_output(job.name)
    else:
        _end(log_stream.follow(job.name, server))


def _end(status: int) -> None:
    """End with the exit status of the job."""
    if status:
        raise SystemExit(status)
