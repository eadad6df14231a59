"""A process that imports once what Ray's workers and the commands of tests import, and forks itself
when one is to start.

Imports are most of a tiny training: 12 of its 19 s of CPU. Started with a folder and the number of
a listening socket; it ends with its standard input. In the folder it leaves a file for each worker,
called after its process, with the process that asked for it. A command is adopted by the test that
asked for it.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

# Nothing of Ray, which reads its job and its raylet from the environment when it is imported.
IMPORTED = (
    "torch.distributed",
    "torch._dynamo",
    "transformers.models.bert.modeling_bert",
    "transformers.models.roberta.modeling_roberta",
    "scipy.stats",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "aiohttp",
    "fsspec",
    "jsonschema",
    "requests",
    "matplotlib.pyplot",
    "mlflow.store.tracking.sqlalchemy_store",
    "cotbert_core.evaluation",
    "cotbert_core.methods",
)


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until standard input ends; the request in a forked process."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        with listener.accept()[0] as asking:
            request, files = _read(asking)
            forked = _fork_orphan(asking) if "above" not in request else os.fork() == 0
        for number, file in enumerate(files):
            if forked:
                os.dup2(file, number)
            os.close(file)
        if forked:
            return request
    return None


def _read(asking: socket.socket) -> tuple[dict[str, Any], list[int]]:
    content, files, _, _ = socket.recv_fds(asking, 1 << 16, 3)
    while more := asking.recv(1 << 16):
        content += more
    return json.loads(content), files


def _fork_orphan(asking: socket.socket) -> bool:
    """Fork a process whose parent has ended, and tell its number once the test has adopted it."""
    reading, writing = os.pipe()
    if between := os.fork():
        os.close(writing)
        with suppress(ChildProcessError):  # nobody waits for it, but its end is waited for
            os.waitpid(between, 0)
        with open(reading, "rb") as number:
            asking.sendall(number.read())
        return False
    os.close(reading)
    if number := os.fork():
        os.write(writing, str(number).encode())
        os._exit(0)
    os.close(writing)
    return True


def become(request: dict[str, Any], folder: Path) -> None:
    """Run the worker or the command in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if "above" in request:
        partial = folder / f"{os.getpid()}.partial"  # a test may look at any moment
        partial.write_text(str(request["above"]))
        partial.rename(partial.with_suffix(".above"))
        if os.getpgrp() != request["group"]:  # Ray kills the group of a worker that it has lost
            os.setpgrp()
    os.umask(request["umask"])
    tempfile.tempdir = None
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    script, *_ = sys.argv = request["arguments"]
    wanted = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    others = [part for part in sys.path[1:] if part not in own]
    sys.path[:] = [str(Path(script).parent), *wanted, *others]
    _forget_other_code()
    runpy.run_path(script, run_name="__main__")


def _forget_other_code() -> None:
    """A submitted job has the code that was sent with it."""
    found = importlib.machinery.PathFinder.find_spec("cotbert_core")
    if found is not None and found.origin != sys.modules["cotbert_core"].__file__:
        for name in [name for name in sys.modules if name.split(".")[0] == "cotbert_core"]:
            del sys.modules[name]


def main(folder: str, number: str) -> None:
    with socket.socket(fileno=int(number)) as listener:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        for name in IMPORTED:
            importlib.import_module(name)
        assert "ray" not in sys.modules
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
        request = serve(listener)
    if request is not None:
        become(request, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
