"""How the cores of a cluster are shared out among actors and the task that feeds them."""

from __future__ import annotations

import os
import socket
from itertools import product
from pathlib import Path

import pytest
from ray._private import ray_constants

from cotbert_core.errors import UserError
from pipelines.runtime import placement, ray_session, worker_resources
from pipelines.runtime.auth_token import default_path


def placements(cores, share, workers):
    """Every way to put so many actors on the nodes, as the cores that it leaves free on each."""
    for counts in product(range(workers + 1), repeat=len(cores)):
        free = [node - share * count for node, count in zip(cores, counts, strict=True)]
        if sum(counts) == workers and min(free) > -1e-9:
            yield free


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("cores", [[1], [2], [4], [64], [1, 1], [2, 2], [1, 4], [4, 4], [8, 8, 8]])
def test_a_whole_core_is_left_wherever_the_actors_are(cores, workers):
    share = placement.cpu_share(cores, workers)
    left = [max(free) for free in placements(cores, share, workers)]
    assert left
    assert min(left) > 1 - 1e-6
    if share:  # and no more could be requested
        more = placements(cores, share + 1, workers)
        assert share + 1 > (sum(cores) - 1) / workers or min(map(max, more), default=0) < 1


def test_two_nodes_of_one_core_and_two_actors():
    """Half a core each, on different nodes, left two halves, and the job waited forever."""
    assert placement.cpu_share([1, 1], 2) == 0
    assert placement.cpu_share([2, 2], 2) == 1


def test_one_actor_asks_for_no_more_than_a_node_has():
    """It requested three cores on each of two nodes, which have two."""
    assert placement.cpu_share([2, 2], 1) == 2


def test_a_head_without_work_has_no_share(monkeypatch):
    import ray

    nodes = [{"Alive": True, "Resources": {"CPU": n, "GPU": 1} if n else {}} for n in (0, 8, 8)]
    nodes.append({"Alive": False, "Resources": {"CPU": 64, "GPU": 8}})
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert worker_resources.worker_pool(None) == (2, {"num_cpus": 7.0, "num_gpus": 1.0}, 8)
    for node in nodes:
        node["Resources"].pop("GPU", None)
    assert worker_resources.worker_pool(None) == (2, {"num_cpus": 7.0}, 8)
    assert worker_resources.cpus_per_worker(4) == 4


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
    import ray

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
            }
        )

    for name in ("RAY_ADDRESS", *ray_session.LOOPBACK, "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {"init": init, "shutdown": lambda: None}.items():
        monkeypatch.setattr(ray, name, value)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    return seen


def test_a_ray_of_this_machine_has_its_doors_closed_before_it_starts(started):
    with ray_session.ray_session():
        [here] = started
        assert here["path"].is_dir()
    assert (here["address"], here["token"], here["folder"]) == ("local", 0o600, 0o700)
    assert (here["loopback"], here["ip"]) == (ray_session.LOOPBACK, "127.0.0.1")
    assert not here["path"].exists()
    assert not set(ray_session.LOOPBACK) & set(os.environ)
    assert ray_constants.ENABLE_RAY_CLUSTER is True


@pytest.mark.parametrize(("wanted", "sent"), [(None, "0"), ("1", "1")])
def test_ray_sends_no_usage_data_unless_that_is_wanted(started, monkeypatch, wanted, sent):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", wanted or "")
    if wanted is None:
        monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    with ray_session.ray_session():
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == sent


def test_rays_logs_stay_after_a_failure(started):
    for error, stays in ((RuntimeError, True), (UserError, False), (KeyboardInterrupt, False)):
        with pytest.raises(error), ray_session.ray_session():
            raise error("a worker died")
        assert started[-1]["path"].is_dir() == stays
    started[0]["path"].rmdir()


def test_a_driver_of_a_cluster_is_left_as_it_is(started, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"127.0.0.1:{one.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with ray_session.ray_session():
            [here] = started
    assert (here["address"], here["token"], here["folder"]) == (address, None, None)
    assert here["loopback"] == dict.fromkeys(ray_session.LOOPBACK)
    assert ray_constants.ENABLE_RAY_CLUSTER is True


def test_what_a_cluster_objects_to_is_one_sentence():
    message = (
        r"the Ray cluster at RAY_ADDRESS 'a:1' cannot be used \(Version mismatch: The cluster was "
        r"started with: Ray: 1\.0\): check its version, its token"
    )
    with pytest.raises(UserError, match=message), ray_session._cluster_errors("a:1"):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\n")
    with pytest.raises(RuntimeError), ray_session._cluster_errors("local"):
        raise RuntimeError("no memory")
