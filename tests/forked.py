"""Commands and Ray's workers that tests/forking forks: how one is started, and whose each is."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.runtime import processes

FORKS = "COTBERT_FORKS"  # the address of the server that forks
COTBERT = str(Path(sys.executable).with_name("cotbert"))
_PR_SET_CHILD_SUBREAPER = 36


class Command(subprocess.Popen):
    """`cotbert` with these words as a process of its own: a child of this one, as Popen's are.

    The process has torch imported; without a fork server it starts as usual, which takes 4 s of
    CPU more. Of Popen's arguments cwd, env, text and the streams are known.
    """

    def __init__(self, *words: object, **popen: Any) -> None:
        super().__init__([COTBERT, *map(str, words)], **popen)

    # private: Popen starts processes by nothing else, and all that it does with them is wanted
    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more):
        if FORKS not in os.environ:
            known = (executable, preexec_fn, close_fds, pass_fds, cwd, env)
            super()._execute_child(args, *known, *more)
            return
        os.umask(umask := os.umask(0))
        request = {
            "arguments": args,
            "environment": dict(os.environ if env is None else env),
            "folder": str(cwd or os.getcwd()),
            "umask": umask,
        }
        streams = [more[number] for number in (3, 6, 8)]  # the child's ends
        files = [number if own == -1 else own for number, own in enumerate(streams)]
        self.pid = _fork(request, files)
        self._child_created = True
        self._close_pipe_fds(*more[3:9])


def run(*words: object, **popen: Any) -> subprocess.CompletedProcess[str]:
    """Run such a command to its end; what it printed is in the result."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Command(*words, **pipes, **popen) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _fork(request: dict[str, Any], files: list[int]) -> int:
    """The number of the new process, whose parent this one becomes."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ[FORKS])
        content = json.dumps(request).encode()
        assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        try:
            sent = socket.send_fds(server, [content], files)
            server.sendall(content[sent:])
            server.shutdown(socket.SHUT_WR)
            return int(server.recv(32))
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def above() -> dict[int, int]:
    """Workers that were forked, and the process that wanted each."""
    if (server := os.environ.get(FORKS)) is None:
        return {}
    return {int(file.stem): int(file.read_text()) for file in Path(server).parent.glob("*.above")}


def know_parents(patch: pytest.MonkeyPatch) -> None:
    """A cluster knows its workers by their parents: of a forked one, the process that wanted it."""
    living = processes.parents

    def parents() -> dict[int, int]:
        found = living()
        return found | {pid: parent for pid, parent in above().items() if pid in found}

    patch.setattr(processes, "parents", parents)
