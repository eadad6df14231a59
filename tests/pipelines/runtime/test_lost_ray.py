"""A job that ends without a word, as when Ray has died, is reported by another process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipelines.runtime.lost_ray import ENDED

IN_BLOCK = """
import os
from pipelines.runtime.lost_ray import sudden_end_reported
with sudden_end_reported():
    {}
"""
# Ray's C++ code ends the driver after it has waited for the GCS.
LOST = """
import os, time
os.environ["RAY_gcs_rpc_server_reconnect_timeout_s"] = "2"
from pipelines.runtime import processes
from pipelines.runtime.ray_session import ray_session
with ray_session():
    processes.kill(processes.ray_processes())
    time.sleep(100)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("statement", "status"), [("os._exit(1)", 1), ("os.kill(os.getpid(), 9)", -9)]
)
def test_a_sudden_end_is_reported(statement, status):
    assert run(IN_BLOCK.format(statement)) == (status, f"\n{ENDED}\n")


def test_an_end_or_an_error_of_the_block_is_not():
    assert run(IN_BLOCK.format("pass")) == (0, "")
    status, printed = run(IN_BLOCK.format("raise ValueError"))
    assert status == 1
    assert ENDED not in printed


@pytest.mark.ray_local
@pytest.mark.usefixtures("without_ray")
def test_the_end_of_ray_is_reported():
    status, printed = run(LOST)
    assert status == 1
    assert printed.endswith(f"\n{ENDED}\n")
