"""MLflow sends no usage data."""

import os
import subprocess
import sys

import pytest

CODE = """
from pipelines.recording.store import connect

connect()
from mlflow.telemetry import client, utils

assert not utils._IS_IN_CI_ENV_OR_TESTING, "MLflow is silent here anyway"
print(client.get_telemetry_client())
"""


@pytest.mark.real
def test_mlflow_sends_no_usage_data(tmp_path):
    """MLflow is silent in tests and CI by itself: the job's environment is not theirs."""
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path}/mlflow.db"
    command = [sys.executable, "-c", CODE]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert found.stdout == "None\n", found.stderr
