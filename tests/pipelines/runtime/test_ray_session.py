"""Ray's start: private on this machine, and a cluster that cannot be used is one sentence."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from ray._private import ray_constants

from cluster import local
from cotbert_core.errors import UserError
from cotbert_core.training import devices
from pipelines.runtime import ray_session
from pipelines.runtime.auth_token import default_path


def test_an_address_at_which_nobody_listens_is_reported_at_once(monkeypatch):
    """Ray itself tries it for minutes."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        message = (
            rf"no Ray cluster answers at RAY_ADDRESS '{address}' \(.*refused\): correct it, or"
        )
        with pytest.raises(UserError, match=message), ray_session.ray_session():
            pytest.fail("there was a session")
        one.listen()
        for good in (address, f"ray://{address}", "auto"):
            ray_session.check_address(good)


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What is there at the moment when Ray would start or be connected to."""
    seen = []

    def init(**options):
        token, folder = default_path(), Path(options.get("_temp_dir", "/")).parent
        seen.append(
            {
                "address": options["address"],
                "token": token.stat().st_mode & 0o777 if token.exists() else None,
                "folder": folder.stat().st_mode & 0o777 if "_temp_dir" in options else None,
                "loopback": {name: os.environ.get(name) for name in ray_session.LOOPBACK},
                "path": folder,
                "ip": ray.util.get_node_ip_address(),
                "gpus": options.get("num_gpus"),
            }
        )

    for name in ("RAY_ADDRESS", *ray_session.LOOPBACK, "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    stubs = {"init": init, "shutdown": lambda: None, "is_initialized": lambda: False}
    for name, value in stubs.items():
        monkeypatch.setattr(ray, name, value)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    yield seen
    assert not set(ray_session.LOOPBACK) & set(os.environ)
    assert ray_constants.ENABLE_RAY_CLUSTER is True


@pytest.mark.parametrize("address", [None, "", "local"])
def test_a_ray_of_this_machine_has_its_doors_closed_before_it_starts(started, monkeypatch, address):
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(devices, "usable_gpus", lambda: 2)  # Ray may find others
    with ray_session.ray_session():
        [here] = started
        assert here["path"].is_dir()
    assert not here["path"].exists()
    del here["path"]
    assert here == {
        "address": "local",
        "token": 0o600,
        "folder": 0o700,
        "loopback": ray_session.LOOPBACK,
        "ip": "127.0.0.1",
        "gpus": 2,
    }


@pytest.mark.usefixtures("started")
def test_what_a_ray_that_does_not_start_in_time_has_begun_is_ended(monkeypatch):
    begun = []

    def init(**_):
        sleep = "import time; time.sleep(60)  # a path with /ray/ in it"
        begun.append(subprocess.Popen([sys.executable, "-c", sleep]))
        raise RuntimeError("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(RuntimeError, match="timed out"), ray_session.ray_session():
        pytest.fail("there was a session")
    assert begun[0].wait(timeout=5) == -signal.SIGKILL


@pytest.mark.parametrize(("wanted", "sent"), [(None, "0"), ("1", "1")])
def test_ray_sends_no_usage_data_unless_that_is_wanted(started, monkeypatch, wanted, sent):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", wanted or "")
    if wanted is None:
        monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    with ray_session.ray_session():
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == sent


def test_a_driver_of_a_cluster_is_left_as_it_is(started, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"127.0.0.1:{one.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with ray_session.ray_session():
            [here] = started
    assert (here["address"], here["token"], here["folder"]) == (address, None, None)
    assert here["gpus"] is None, "Ray refuses resources for a cluster that runs"
    assert here["loopback"] == dict.fromkeys(ray_session.LOOPBACK)


def test_an_installation_whose_workers_would_never_start_is_refused(monkeypatch):
    """Ray would wait for them without end."""
    ray_session.check_installation()
    monkeypatch.setattr(sys, "prefix", "/home/ann's/.venv")
    for start in (ray_session.ray_session().__enter__, local.up):
        with pytest.raises(UserError, match="starts no worker from a path with an"):
            start()


def test_what_a_cluster_objects_to_is_one_sentence():
    message = (
        r"the Ray cluster at RAY_ADDRESS 'a:1' cannot be used \(Version mismatch: The cluster was "
        r"started with: Ray: 1\.0\): check its version and its token; if"
    )
    with pytest.raises(UserError, match=message), ray_session._cluster_errors("a:1"):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\n")
    with pytest.raises(RuntimeError), ray_session._cluster_errors("local"):
        raise RuntimeError("no memory")
