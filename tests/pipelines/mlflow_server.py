"""A real `mlflow server` on this machine, which tests kill, stop and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from waiting import until


class Server:
    """A tracking server with its database and artifacts in a folder, always at the same port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri, self.folder = f"http://127.0.0.1:{self.port}", folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.process is not None:
            return
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        # MLflow leaves locks among the temporary files; its jobs are two processes more.
        own = {"TMPDIR": str(self.folder), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        popen = {"cwd": self.folder, "env": {**os.environ, **own}, "start_new_session": True}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **popen)
        until(self._answers, 120, self.process)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the server and its workers."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
