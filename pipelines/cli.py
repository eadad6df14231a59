"""The command line. Only the chosen job's module is imported, so `--help` answers at once.

Exit status: 0; 2 for the user's mistakes, one sentence on standard error; 1 when a job failed
after it had begun; 130 when interrupted, 143 after SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cluster.command_paths import CommandLine
from cotbert_core.errors import UserError
from cotbert_core.messages.printable import printable
from cotbert_core.messages.redaction import redact
from pipelines.commands import COMMANDS, Arguments
from pipelines.commands.options import trainings
from pipelines.runtime.progress import say
from pipelines.runtime.stop_signals import Stop, stop_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = build_parser().parse_args(argv)
    arguments.command_line = command_line
    # Else the interpreter looks for cycles among all that a job imported before it ends: 4 s of 28.
    atexit.register(gc.freeze)
    with stop_signals() as stop:
        return _run(arguments, stop)


def _run(arguments: Arguments, stop: Stop) -> int:
    try:
        arguments.run(arguments)
    except UserError as error:
        return _fail(error, 2)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `head`
        sys.stderr.close()
        return 1
    except KeyboardInterrupt as interruption:
        return _interrupted(stop, str(interruption))
    except Exception as error:
        if stop.signal is not None:  # what fails since all processes of a job are stopped at once
            return _interrupted(stop, "")
        return _explain(error, arguments)
    return 0


def _interrupted(stop: Stop, next_step: str) -> int:
    """Say what ended the command, and how it goes on where the job knows; 128 + the signal."""
    number = stop.signal or signal.SIGINT
    how = "interrupted" if stop.signal is None else f"stopped by {number.name}"
    with suppress(OSError):  # SIGHUP: the terminal is gone
        _fail(f"{how}; {next_step or 'nothing half-written has its final name'}", 0)
    return 128 + number


def _explain(error: Exception, arguments: Arguments) -> int:
    """A job's failure, whole with --verbose."""
    if getattr(arguments, "verbose", False):
        say("".join(traceback.format_exception(error)).rstrip())
        return 1
    from pipelines.storage.disk_full import disk_full  # its imports would slow --help

    if full := disk_full(error, arguments):
        return _fail(f"the job failed: {full}", 1)
    return _fail(f"the job failed: {_cause(error)} (--verbose shows where)", 1)


def _cause(error: Exception) -> str:
    """In one line; Ray Tune's errors are whole tracebacks, whose last line names the cause."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if lines[0].startswith("Traceback (most recent call last)") else lines[0]


def _fail(message: object, status: int) -> int:
    say(f"cotbert: {' '.join(str(message).splitlines())}")
    return status


def command_line() -> CommandLine:
    """Return what `cotbert submit` checks another command by."""
    add_options = {name: add for name, (add, _, _) in COMMANDS.items()}
    return CommandLine(build_parser().parse_args, add_options, trainings)


class _Parser(argparse.ArgumentParser):
    """Repeats what was given without sending its control characters, or credentials."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable(redact(message)), file)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows a default where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False or action.default == []:
            return action.help
        return super()._get_help_string(action)


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = _Parser(
        prog="cotbert",
        description="Sentence encoders from unlabelled sentences: PromptBERT, CoT-BERT, DenoSent.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (add_options, run, text) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            formatter_class=_Help,
        )
        add_options(command)
        command.set_defaults(run=run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
