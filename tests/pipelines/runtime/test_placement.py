"""How the actors of a job share cores and GPUs: 0, 1 and 8 GPUs, one node and several."""

from __future__ import annotations

import math
from itertools import product

import pytest
import ray
import torch

from cotbert_core.training import devices
from pipelines.runtime import shard_tasks, worker_resources
from pipelines.runtime.placement import UNITS, Node, cpu_share, place_workers, use_own_device
from pipelines.training import training_state, worker
from pipelines.training.worker_process import SingleWorker


def placements(cores, share, workers):
    """Every way to put so many actors on the nodes, as the cores that it leaves free on each."""
    for counts in product(range(workers + 1), repeat=len(cores)):
        free = [node - share * count for node, count in zip(cores, counts, strict=True)]
        if sum(counts) == workers and min(free) > -1e-9:
            yield free


@pytest.mark.parametrize("cores", [[1], [2], [4], [64], [1, 1], [2, 2], [1, 4], [4, 4], [8, 8, 8]])
def test_a_whole_core_is_left_wherever_the_actors_are(cores):
    """Else the task that feeds them would wait forever: two nodes of one core and two actors of
    half a core each, on different nodes, left two halves."""
    assert cpu_share([2, 2], 2) == 1
    for workers in (1, 2, 3, 4, 8):
        share = cpu_share(cores, workers)
        left = [max(free) for free in placements(cores, share, workers)]
        assert left, workers
        assert min(left) > 1 - 1e-6, workers
        if share:  # and no more could be requested
            more = placements(cores, share + 1, workers)
            assert share + 1 > (sum(cores) - 1) / workers or min(map(max, more), default=0) < 1


def started(nodes, placed):
    """The actors that a scheduler puts on the nodes one after the other, each on the GPU with the
    least left that is enough, as Ray does; for each GPU, how many it has."""
    cpus, gpus = round(placed.cpus * UNITS), round(placed.gpus * UNITS)
    free = [[node.cpus * UNITS, [UNITS] * node.gpus] for node in nodes]
    for _ in range(placed.workers):
        for node in free:
            fitting = [i for i, left in enumerate(node[1]) if left >= gpus]
            if node[0] >= cpus and (fitting or not gpus):
                node[0] -= cpus
                if gpus:
                    node[1][min(fitting, key=lambda i: node[1][i])] -= gpus
                break
        else:
            return None
    assert max(node[0] for node in free) >= UNITS or not cpus, "the feeding task has no core"
    return [(UNITS - left) // gpus for node in free for left in node[1]] if gpus else []


CLUSTERS = {
    "one GPU": [Node(8, 1)],
    "eight GPUs": [Node(16, 8)],
    "few cores": [Node(4, 8)],
    "head and two nodes": [Node(16), Node(8, 4), Node(8, 4)],
    "unequal": [Node(2), Node(32, 8), Node(4, 1)],
}


@pytest.mark.parametrize("nodes", CLUSTERS.values(), ids=CLUSTERS)
def test_every_worker_starts_and_has_a_gpu(nodes):
    gpus = sum(node.gpus for node in nodes)
    for workers in (None, 1, 2, 3, 7, 8, 9, 12, 16, 24, 50):
        placed = place_workers(nodes, workers)
        on_gpus = started(nodes, placed)
        assert on_gpus is not None, f"some of {placed} find no room"
        assert placed.workers == sum(on_gpus) == (workers or gpus)
        assert max(on_gpus) == math.ceil(placed.workers / gpus), "a GPU has more than its share"
        assert on_gpus.count(0) >= placed.idle_gpus
        if placed.workers % gpus == 0:
            assert set(on_gpus) == {placed.workers // gpus}
            assert placed.idle_gpus == 0


def test_fractions_add_up_to_no_more_than_a_gpu():
    shares = {n: place_workers([Node(64, 8)], n).gpus for n in (4, 8, 9, 16, 24, 56)}
    assert shares == {4: 1.0, 8: 1.0, 9: 0.5, 16: 0.5, 24: 0.3333, 56: 0.1428}


def test_cores_are_those_of_the_nodes_with_gpus():
    """Two cores each, as the head's 16 allowed, left room for four of eight workers."""
    nodes = [Node(16), Node(8, 8)]
    placed = place_workers(nodes)
    assert (placed.workers, placed.cpus, placed.threads) == (8, 1.0, 1)
    on_cpus = place_workers(nodes, 8, on_gpus=False)
    assert (on_cpus.cpus, on_cpus.gpus, on_cpus.threads) == (2.0, 0.0, 2)


@pytest.mark.parametrize(
    ("nodes", "workers", "threads"),
    [
        ([Node(64), Node(4)], 2, 32),
        ([Node(16), Node(2)], 2, 8),
        ([Node(8), Node(8), Node(1)], 3, 4),
        ([Node(8), Node(8)], 2, 8),
        ([Node(2, 2), Node(32, 2)], 2, 16),
    ],
)
def test_threads_are_at_least_the_cores_that_a_worker_requests(nodes, workers, threads):
    """The smallest node's, 4 of 64 in the first, would leave most cores idle."""
    placed = place_workers(nodes, workers)
    assert placed.threads == threads >= int(placed.cpus)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
def test_parts_of_cores_leave_a_whole_one(workers):
    """Ray rounds: two thirds of a core became 0.6667, and three actors left 0.9999 of three."""
    assert started([Node(3)], place_workers([Node(3)], workers)) == []


def test_without_gpus_there_is_a_worker_a_node_and_no_gpu_is_asked_for():
    placed = place_workers([Node(8), Node(8)])
    assert (placed.workers, placed.gpus, placed.cpus) == (2, 0.0, 7.0)
    assert place_workers([Node(8, 8)], on_gpus=False).workers == 1
    assert place_workers([Node(8, 8)], 8, shards=3).workers == 3


@pytest.fixture
def cluster(monkeypatch):
    """Let Ray's live nodes have these (cores, GPUs), and a dead one many more."""

    def set_nodes(*sizes):
        lent = [{"CPU": cpus, "GPU": gpus} if cpus else {} for cpus, gpus in sizes]
        nodes = [{"Alive": True, "Resources": resources} for resources in lent]
        dead = {"Alive": False, "Resources": {"CPU": 64, "GPU": 8}}
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "nodes", lambda: [*nodes, dead])

    return set_nodes


def test_a_head_without_work_has_no_share(cluster):
    cluster((0, 0), (8, 1), (8, 1))
    assert worker_resources.worker_pool(None) == (2, {"num_cpus": 7.0, "num_gpus": 1.0}, 8)
    cluster((0, 0), (8, 0), (8, 0))
    assert worker_resources.worker_pool(None) == (2, {"num_cpus": 7.0}, 8)
    assert worker_resources.cpus_per_worker(4) == 4


def test_a_pool_that_leaves_gpus_idle_is_named(cluster, capsys):
    cluster((32.0, 8.0))
    workers, asked, _ = worker_resources.worker_pool(12)
    assert (workers, asked["num_gpus"]) == (12, 0.5)
    assert "12 workers use 6 of 8 GPUs: a multiple of 8 workers uses" in capsys.readouterr().err
    assert worker_resources.worker_pool(16)[1]["num_gpus"] == 0.5
    assert capsys.readouterr().err == ""
    for workers in (None, 12):
        assert worker_resources.worker_pool(workers, shards=3)[0] == 3
    assert capsys.readouterr().err == "", "three parts cannot use more"
    assert "num_gpus" not in worker_resources.worker_pool(12, on_gpus=False)[1]
    assert worker_resources.cpus_per_worker(8, on_gpus=True) == 4


@pytest.mark.parametrize(
    ("asked", "running", "parts", "note"),
    [
        (50, 1, 1, "note: --workers is 50 and 1 will run, at most one for each part of the "
                   "input that is left (1), on 4 cores"),
        (50, 50, 80, "note: --workers is 50 and there are 4 cores, which they will share"),
        (4, 4, 80, ""),
        (2, 2, 2, ""),
        (None, 1, 1, ""),
        (9, 1, 0, ""),
    ],
)  # fmt: skip
def test_workers_that_do_not_run_or_share_cores_are_named(
    monkeypatch, capsys, asked, running, parts, note
):
    monkeypatch.setattr(shard_tasks, "available_cores", lambda: 4)
    monkeypatch.setattr(shard_tasks, "ray_runs", lambda: False)
    shard_tasks.report_workers(asked, running, parts)
    assert capsys.readouterr().err.strip() == note


@pytest.fixture
def eight_gpus(monkeypatch):
    """A process that sees eight GPUs, as a worker without one does; the devices that it chose."""
    chosen = []
    monkeypatch.setattr(devices, "_chosen", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    # Of torch's own set_device only the last call is replaced: it refuses what is no GPU.
    monkeypatch.setattr(torch._C, "_cuda_setDevice", chosen.append, raising=False)
    return chosen


@pytest.mark.parametrize(("given", "device"), [([], "cpu"), (["5"], "cuda:0")])
def test_an_actor_computes_on_the_gpu_that_it_was_given(monkeypatch, eight_gpus, given, device):
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: given)
    assert devices.current_device() == torch.device("cuda"), "premise: all GPUs are visible"
    shard_tasks._PackedActor(dict, {})
    assert devices.current_device() == torch.device(device)
    assert eight_gpus == [0] * len(given)


def test_a_gpu_that_torch_cannot_use_is_not_chosen(monkeypatch, eight_gpus):
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: ["0"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)  # with a driver that is too old
    assert worker_resources.live_nodes()[0].gpus == 0
    assert use_own_device() == torch.device("cpu")


@pytest.mark.parametrize("given", ["cpu", "cuda:0", "cuda:7"])
def test_a_training_worker_takes_the_device_that_ray_names(monkeypatch, eight_gpus, given):
    """Ray names the CPU where a worker requests no GPU, and torch's set_device refuses that."""
    jobs = []
    monkeypatch.setattr("ray.train.torch.get_device", lambda: torch.device(given))
    monkeypatch.setattr(worker, "train_worker", jobs.append)
    worker.ray_train_worker({"cpus": 2})
    assert jobs == [{"cpus": 2}]
    assert devices.current_device() == torch.device(given)
    assert eight_gpus == ([] if given == "cpu" else [torch.device(given).index])


@pytest.mark.parametrize(("given", "device"), [([], "cpu"), (["3"], "cuda:0")])
def test_a_single_worker_takes_the_device_that_ray_gives(monkeypatch, eight_gpus, given, device):
    """Ray shows a process with a GPU that one alone; a process without one sees them all."""
    jobs = []
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: given)
    monkeypatch.setattr(worker, "train_worker", jobs.append)
    SingleWorker().train({"cpus": 2})
    assert jobs == [{"cpus": 2}]
    assert devices.current_device() == torch.device(device)


def test_random_states_are_those_of_the_own_device(monkeypatch, eight_gpus):
    """A worker on the CPU that asks for the GPU's state takes half a GB of the first GPU for it."""
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: torch.ones(3))
    for device, states in (("cpu", {"cpu"}), ("cuda:3", {"cpu", "cuda"})):
        devices.use_device(device)
        assert set(training_state._random_states()) == states
