"""The command line. Only the chosen job's module is imported, so `--help` answers at once.

Exit status: 0; 2 for the user's mistakes, one sentence on standard error; 1 when a job failed
after it had begun; 130 when interrupted, 143 after SIGTERM, 129 after SIGHUP.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from cotbert_core.errors import UserError, did_you_mean
from cotbert_core.imports import skip_last_collection
from cotbert_core.messages.printable import printable
from cotbert_core.messages.redaction import redact
from pipelines.commands import COMMANDS, Command
from pipelines.options.completion import SHELLS, completion_script
from pipelines.options.declare import build
from pipelines.options.parser import add_arguments
from pipelines.runtime.low_memory import out_of_memory
from pipelines.runtime.progress import is_verbose, print_output, say, set_output
from pipelines.runtime.stop_signals import Stop, stop_signals
from pipelines.storage.paths import enter_folder

# Of a path that the user gave: it may not be opened, or no file can have its name.
REFUSED_PATHS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    given = vars(build_parser().parse_args(argv))
    # Garbage collection at its usual thresholds takes 15 % of the time of a job's imports; with
    # 50,000 as the first it still took 0.5 s of 5.5.
    gc.set_threshold(200_000, 20, 20)
    set_output(quiet=given.pop("quiet"), verbose=given.pop("verbose"))
    atexit.register(skip_last_collection)
    with stop_signals() as stop:
        return _run(COMMANDS[given["command_name"]], given | {"parse": _given}, stop)


def _run(command: Command, given: dict[str, Any], stop: Stop) -> int:
    options: Any = None
    try:
        values = chain.from_iterable(v if isinstance(v, list) else [v] for v in given.values())
        enter_folder(value for value in values if isinstance(value, Path))
        options = build(command.options, given)
        if hasattr(options, "output"):  # a job that MLflow records
            from pipelines.recording.store import check_address

            check_address()
        options.run()
    except UserError as error:
        return _fail(error, 2)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `head`
        sys.stderr.close()
        return 1
    except KeyboardInterrupt as interruption:
        return _interrupted(stop, options, str(interruption))
    except Exception as error:
        if stop.signal is not None:  # what fails since all processes of a job are stopped at once
            return _interrupted(stop, options)
        if isinstance(error, OSError) and error.errno in REFUSED_PATHS and error.filename:
            why = f"{str(error.filename)!r} cannot be opened ({error.strerror})"
            return _fail(f"{why}: change its permissions or give another path", 2)
        return _explain(error, options)
    return 0


def _interrupted(stop: Stop, options: object, next_step: str = "") -> int:
    """Report what ended the command and how to continue it; return 128 + the signal."""
    from pipelines.storage.output_folder import CONTINUE, is_unfinished, output_of  # slow

    number = stop.signal or signal.SIGINT
    how = "interrupted" if stop.signal is None else f"stopped by {number.name}"
    if not next_step:
        unfinished = is_unfinished(output_of(options))
        next_step = CONTINUE if unfinished else "nothing half-written has its final name"
    with suppress(OSError):  # SIGHUP: the terminal is gone
        _fail(f"{how}; {next_step}", 0)
    return 128 + number


def _explain(error: Exception, options: object) -> int:
    """Report a job's failure, with a traceback if --verbose is given, and what is left to continue.

    Nothing is promised: the same loss may diverge again.
    """
    if is_verbose():
        say("".join(traceback.format_exception(error)).rstrip())
        return 1
    from pipelines.storage.disk_full import disk_full  # slow imports
    from pipelines.storage.output_folder import AGAIN, is_unfinished, output_of

    why = disk_full(error, options) or out_of_memory(error)
    why = why or f"{_cause(error)} (--verbose shows where)"
    if AGAIN not in why and is_unfinished(output_of(options)):
        why += "; what is finished is kept, and the same command continues from there"
    return _fail(f"the job failed: {why}", 1)


def _cause(error: Exception) -> str:
    """Return the cause in one line, which is the last line of the tracebacks of Ray Tune."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1] if lines[0].startswith("Traceback (most recent call last)") else lines[0]


def _fail(message: object, status: int) -> int:
    say(f"cotbert: {' '.join(str(message).splitlines())}")
    return status


def _given(words: Sequence[str]) -> dict[str, Any]:
    """Return the values on a command line; the options' defaults are not among them."""
    return vars(build_parser().parse_args(words))


class _Version(argparse.Action):
    """Prints the version, which is looked up only then: 45 ms of every command's start."""

    def __call__(self, parser: Any, *_: Any) -> None:
        from importlib.metadata import version

        print_output(version("cotbert"))
        parser.exit()


class _Completion(argparse.Action):
    """Prints the script with which a shell completes commands and options."""

    def __call__(self, parser: Any, namespace: Any, shell: Any, *_: Any) -> None:
        models = {name: (command.help, command.options) for name, command in COMMANDS.items()}
        print_output(completion_script(shell, parser.prog, models), end="")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Explains a mistake in one line, without the control characters and credentials given."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, strange = super().parse_known_args(args, namespace)
        if strange:  # else argparse would leave them to the parser of all commands
            # private: argparse itself suggests an option from Python 3.14 on
            meant = did_you_mean(strange[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(strange)}{meant}")
        return found, []

    def error(self, message: str) -> NoReturn:
        if wrong := re.match("argument COMMAND: invalid choice: '([^']*)'", message):
            message = f"unknown command {wrong[1]!r}{did_you_mean(wrong[1], COMMANDS)}"
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(status, message and printable(redact(message)))


@cache
def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and their options."""
    parser = _Parser(
        prog="cotbert",
        description="Adapt sentence encoders to unlabelled text.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the program's version number and exit"
    )
    parser.add_argument(
        "--print-completion",
        action=_Completion,
        choices=SHELLS,
        metavar="SHELL",
        help=f"print the script by which a shell completes commands, and exit: {', '.join(SHELLS)}",
    )
    commands = parser.add_subparsers(
        required=True, title="commands", metavar="COMMAND", dest="command_name"
    )
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
        )
        add_arguments(one, command.options)
    return parser


if __name__ == "__main__":
    sys.exit(main())
