"""A process that imports once what Ray's workers import, and forks itself when one is to start.

Imports are most of a tiny training: 12 of its 19 s of CPU. Started with the path of a socket; it
ends with its standard input. Beside the socket it leaves a file for each worker, called after its
process, with the process that asked for it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
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
    "cotbert_core.evaluation",
    "cotbert_core.methods",
)


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until standard input ends; the request in a forked process."""
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        with listener.accept()[0] as asking:
            request, files = _read(asking)
            forked = os.fork() == 0
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


def become(request: dict[str, Any], folder: Path) -> None:
    """Run the worker in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    (folder / f"{os.getpid()}.above").write_text(str(request["above"]))
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    script, *_ = sys.argv = request["arguments"]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def main(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        for name in IMPORTED:
            importlib.import_module(name)
        assert "ray" not in sys.modules
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
        request = serve(listener)
    if request is not None:
        become(request, Path(path).parent)


if __name__ == "__main__":
    main(sys.argv[1])
