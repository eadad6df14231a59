"""The libraries send no usage data."""

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
# Before they send anything, they write an id of this user into the home folder.
OTHERS = """
import sys
from contextlib import suppress
from pathlib import Path

from cotbert_core.exporting.openvino_model import check_openvino
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.exporting.export import run_onnx

check_openvino(SentenceEncoder.from_pretrained(sys.argv[1], readout="mean"))
import nncf
import openvino

with suppress(Exception):  # the folder has no graph
    run_onnx(Path("none"), ["A text."])
import onnxruntime

print(list(Path.home().rglob("*")))
"""


@pytest.mark.real
def test_mlflow_sends_no_usage_data(tmp_path):
    assert _printed(CODE, tmp_path) == "None\n"


@pytest.mark.real
def test_openvino_and_onnxruntime_send_no_usage_data(tmp_path, bert_folder):
    for package in ("nncf", "openvino", "onnxruntime"):
        pytest.importorskip(package)
    assert _printed(OTHERS, tmp_path, bert_folder, HOME=str(tmp_path)) == "[]\n"


def _printed(code, folder, *arguments, **variables):
    """What a process prints that knows nothing of tests and CI, where libraries are silent."""
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    command = [sys.executable, "-c", code, *arguments]
    found = subprocess.run(
        command,
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout
