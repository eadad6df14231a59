"""cotbert submit: its options, and the calls they become."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cotbert_core.errors import UserError
from pipelines.commands.options import Arguments
from pipelines.runtime.progress import show

if TYPE_CHECKING:
    from cluster.server import JobServer


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="a command of cotbert with its options, after `--`; its paths must be seen by all "
        "nodes, and relative ones mean this folder",
    )
    command.add_argument(
        "--address",
        metavar="URL",
        help="of the job server; default: RAY_API_SERVER_ADDRESS, else of `cotbert cluster up`",
    )
    command.add_argument("--name", metavar="ID", help="of the job; default: made from the time")
    command.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="an environment variable for the job; may be repeated. MLFLOW_TRACKING_*, "
        "COTBERT_CACHE, HF_TOKEN, OPENAI_API_KEY and AWS_* are passed on where they are set",
    )
    command.add_argument(
        "--may-grow",
        action="store_true",
        help="the cluster adds nodes by itself: submit although it has too few cores now",
    )
    command.add_argument(
        "--no-wait", action="store_true", help="do not show the job's output and wait for its end"
    )
    known = command.add_mutually_exclusive_group()
    known.add_argument("--status", metavar="ID", help="tell how a job is doing")
    known.add_argument("--logs", metavar="ID", help="show a job's output, until its end")
    known.add_argument("--stop", metavar="ID", help="end a job")
    command.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from cluster import jobs, log_stream
    from cluster.server import JobServer

    _check(arguments)
    server = JobServer(jobs.find_address(arguments.address))
    if arguments.command:
        _submit(arguments, server)
        return
    server.check_versions()
    if arguments.status:
        from pipelines.commands.printing import print_texts

        print_texts(log_stream.describe(arguments.status, server))
    elif arguments.stop:
        show(log_stream.stop(arguments.stop, server))
    else:
        _end(log_stream.follow(arguments.logs, server))


def _check(arguments: Arguments) -> None:
    """UserError unless a command is given or one question is asked."""
    asked = arguments.status or arguments.logs or arguments.stop
    if asked and arguments.command:
        raise UserError("a command goes with neither --status, --logs nor --stop: leave one out")
    if not asked and not arguments.command:
        raise UserError("no command is given: write it after `--`, as in `-- train RECIPE ...`")


def _submit(arguments: Arguments, server: JobServer) -> None:
    from cluster import jobs, log_stream

    job = jobs.check(
        arguments.command,
        arguments.command_line(),
        server,
        arguments.name,
        arguments.env,
        arguments.may_grow,
    )
    jobs.submit(job, server)
    jobs.announce(job, server)
    if arguments.no_wait:
        show(job.name)
    else:
        _end(log_stream.follow(job.name, server))


def _end(status: int) -> None:
    """A job's own exit status becomes this command's."""
    if status:
        raise SystemExit(status)
