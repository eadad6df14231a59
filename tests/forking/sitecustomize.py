"""Python reads this file at its start where tests/forking is on PYTHONPATH.

A Ray worker that starts asks the server at COTBERT_FORKS (fork_server.py) to fork one that has
torch imported, and ends. All other processes start as usual.
"""

import os
import sys

CONTEXT = "--serialized-runtime-env-context="


def _request(arguments: list[str]) -> dict[str, object] | None:
    """What the server needs; None where this process is no worker, or its runtime environment
    holds more than variables."""
    import json

    names = [os.path.basename(argument) for argument in arguments]
    if "default_worker.py" not in names:
        return None
    environment = dict(os.environ)
    for argument in arguments:
        if argument.startswith(CONTEXT):
            context = json.loads(argument.removeprefix(CONTEXT))
            environment |= context.pop("env_vars", {})
            if context.pop("py_executable", sys.executable) != sys.executable or any(
                context.values()
            ):
                return None
    kept = arguments[names.index("default_worker.py") :]
    kept = [argument for argument in kept if not argument.startswith((CONTEXT, "--language="))]
    os.umask(umask := os.umask(0))
    place = {"folder": os.getcwd(), "umask": umask}
    kin = {"above": os.getppid(), "group": os.getpgrp()}
    return {"arguments": kept, "environment": environment, **place, **kin}


def _fork() -> None:
    request = _request(sys.orig_argv)
    if request is None:
        return
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["COTBERT_FORKS"])
        content = json.dumps(request).encode()
        sent = socket.send_fds(server, [content], [0, 1, 2])
        server.sendall(content[sent:])
        server.shutdown(socket.SHUT_WR)
        server.recv(1)
    os._exit(0)


if "COTBERT_FORKS" in os.environ:
    _fork()
