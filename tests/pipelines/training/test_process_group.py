"""Workers on one machine meet on loopback; torch's own way listens on all interfaces."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import pytest
import ray.util
import torch
import torch.distributed as dist
from listening import listeners
from ray.train.torch import TorchConfig
from worker_pair import fork_server

from cluster.nodes import free_ports
from pipelines.training import process_group
from pipelines.training.failures import _PEER_GONE


def work(private: bool, rank: int, port: int, pipe) -> None:
    """A worker that adds its number to the other's, and then waits."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ.update(variables, RANK=str(rank))
    if private:
        process_group.listen_on_loopback()
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    total = torch.tensor([rank + 1.0])
    dist.all_reduce(total)
    pipe.send(total.item())
    pipe.recv()
    dist.destroy_process_group()


@pytest.mark.real
@pytest.mark.parametrize("private", [True, False])
def test_the_store_listens_on_loopback_alone(private):
    [port] = free_ports(1)
    context = fork_server()
    pipes = [context.Pipe() for _ in range(2)]
    workers = [
        context.Process(target=work, args=(private, rank, port, theirs))
        for rank, (_, theirs) in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()
    try:
        assert [own.recv() for own, _ in pipes] == [3.0, 3.0]
        found = set(listeners(worker.pid for worker in workers))
    finally:
        for (own, _), worker in zip(pipes, workers, strict=True):
            own.send(None)
            worker.join()
    assert {worker.exitcode for worker in workers} == {0}
    [store] = [one for one in found if one.port == port]
    assert store.on_loopback == private
    if private:
        assert len(found) == 3  # and gloo's, of each worker
        assert all(one.on_loopback for one in found)


def test_a_port_taken_meanwhile_is_a_loss_that_a_training_mends():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(dist.DistNetworkError, match=f"127.0.0.1:{port}: .* in use") as refused:
            process_group.store_on_loopback(host_name="127.0.0.1", port=port, is_master=True)
    assert _PEER_GONE.search(repr(refused.value))


def test_a_node_of_a_network_is_left_as_it_is(monkeypatch):
    done = []

    class Group:
        def execute_single(self, rank, function):
            return function()

        def execute(self, function):
            done.append(function)

    monkeypatch.setattr(TorchConfig().backend_cls, "on_start", lambda *_: done.append("ray"))
    for address in ("10.0.0.7", "127.0.0.1"):
        monkeypatch.setattr(ray.util, "get_node_ip_address", lambda a=address: a)
        config = process_group.LoopbackTorchConfig()
        config.backend_cls().on_start(Group(), config)
    assert done == ["ray", process_group.listen_on_loopback, "ray"]
