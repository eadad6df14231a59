"""Every use of Ray's private API, each with the public API that was tried.

A minor release of Ray may change any of it without notice, so pyproject.toml admits one minor
release, and tests/pipelines/runtime/test_ray_private.py says what to do when a new Ray lacks a part
of it. docs/upstream.md describes the bugs in Ray that make some of these uses necessary.
Ray is imported inside the functions: commands import this file before they need Ray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

LOOPBACK_ADDRESS = "127.0.0.1"


def temporary_folder(folder: Path) -> dict[str, Any]:
    """Return the options of `ray.init` that put Ray's logs and sockets below a folder.

    Public way: the variable RAY_TMPDIR. Ray appends `ray` to it, and its sockets leave no
    characters to spare; every process that the job starts inherits it.
    """
    return {"_temp_dir": str(folder)}


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module inside the block."""
    previous = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, previous)


def loopback_address() -> AbstractContextManager[None]:
    """Make this process's Ray use 127.0.0.1 as its node's address inside a `with` block.

    Public way: the variable RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER. Ray reads it only when it is
    imported, maybe long before, and a cluster that is used later must be found as usual.
    """
    from ray._private import ray_constants

    return _replaced(ray_constants, "ENABLE_RAY_CLUSTER", False)


def free_agent_port() -> AbstractContextManager[None]:
    """Let a Ray that this process starts inside a `with` block use any free port for its agent.

    The agent listens at 52365 by default. If another Ray on this machine has that port, it tries
    six times, and the start takes 7.3 s instead of 3.3 to 4.4 s (2 cores).

    Public way: `ray start` has --dashboard-agent-listen-port, `ray.init` has no such argument.
    """
    from ray._private import parameter

    any_port = partial(parameter.RayParams, dashboard_agent_listen_port=0)
    return _replaced(parameter, "RayParams", any_port)


def keep_replica_on_loopback() -> None:
    """Keep this process's replica of Ray Serve on 127.0.0.1 if that is its node's address.

    Call this in the replica's constructor. After it Ray Serve opens a gRPC port for requests from
    other replicas on all interfaces ([::]).

    Public way: no setting names the address, and none leaves the port out.
    """
    import ray
    from ray.serve._private import replica

    if ray.util.get_node_ip_address() != LOOPBACK_ADDRESS:
        return
    add_port = replica.add_port_to_grpc_server

    def add_local_port(server: Any, address: str) -> Any:
        return add_port(server, address.replace("[::]", LOOPBACK_ADDRESS))

    replica.add_port_to_grpc_server = add_local_port


def job_config() -> Any:
    """Return the option of `ray.init` with which workers import nothing from the current folder.

    Ray puts it first in their sys.path, so that a user's folder there with a usual name, such as
    `pipelines` or `cluster`, would be imported in the place of this project's.

    Public way: a working_dir in the runtime_env, but Ray would copy its files to every node. A
    submitted job has one, and keeps its configuration.
    """
    from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
    from ray.job_config import JobConfig

    if RAY_JOB_CONFIG_JSON_ENV_VAR in os.environ:
        return None
    code = Path(__file__).resolve().parents[2]  # of a checkout that is not installed
    paths = [] if code.name == "site-packages" else [str(code)]
    return JobConfig(_client_job=True, _py_driver_sys_path=paths)


def messages_to(write: Callable[[str], None]) -> AbstractContextManager[None]:
    """Hand Ray's messages about lost workers and nodes and retried calls to `write` in a block.

    The driver would print them, coloured, on standard output, among the job's results.

    Public way: none; log_to_driver=False of `ray.init` hides only what the workers print.
    """
    from ray._private import worker

    def print_lines(data: Any, ignore_prefix: str) -> None:
        write("\n".join(data["lines"]))

    return _replaced(worker, "print_to_stdstream", print_lines)


def trainer(messages: Any, *arguments: Any, **options: Any) -> Any:
    """Return a TorchTrainer that reports its reserved cores to the queue, without Ray's cleaner.

    If a worker dies while the process group forms, Ray Train keeps the cores reserved and the next
    start waits for them indefinitely, so the driver releases them (release_cores). Ray's own
    cleaner, which releases them when the controller dies, is a detached actor that never exits:
    each killed driver leaves one on the cluster, using 190 MB on the head node.

    Public way: a `ray.train.UserCallback` is not called when workers start; a callback in
    RunConfig is called after the process group has formed, which is too late; a worker that asks
    `ray.util.get_current_placement_group` may be the one that died. No setting turns off the
    cleaner.
    """
    from ray.train.torch import TorchTrainer
    from ray.train.v2._internal.callbacks.placement_group_callback import (
        PlacementGroupCleanerCallback,
    )

    torch_trainer = TorchTrainer(*arguments, **options)
    defaults = torch_trainer._create_default_callbacks

    def callbacks() -> list[Any]:
        kept = [c for c in defaults() if not isinstance(c, PlacementGroupCleanerCallback)]
        return [_core_reporter(messages), *kept]

    torch_trainer._create_default_callbacks = callbacks
    return torch_trainer


def _core_reporter(messages: Any) -> Any:
    """Return the callback that reports to the queue which cores the workers hold."""
    import ray
    from ray.train.v2._internal.execution.callback import WorkerGroupCallback

    class CoreReporter(WorkerGroupCallback):  # type: ignore[misc]
        def after_worker_group_start(self, worker_group: Any) -> None:
            state = worker_group.get_worker_group_state()
            ray.get(messages.set_reservation.remote(state.placement_group_handle.placement_group))

    return CoreReporter()


def release_cores(messages: Any) -> None:
    """Release the cores of the last, failed start, which also ends its remaining workers."""
    import ray
    from ray.util.placement_group import remove_placement_group

    group = ray.get(messages.reservation.remote())
    if group is not None:
        remove_placement_group(group)


def start_timed_out(failure: Any) -> bool:
    """Return whether Ray Train timed out waiting for the workers' resources.

    Public way: `ray.train.ControllerError` holds the failure, but its class has no public name,
    and its message is not meant for programs.
    """
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    return isinstance(failure, WorkerGroupStartupTimeoutError)


def start_failed(failure: Any) -> bool:
    """Return whether a worker or its node died while Ray Train started the workers.

    Public way: as for start_timed_out.
    """
    from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError

    return isinstance(failure, WorkerGroupStartupFailedError)


def cause_of_death(failure: Any) -> Any:
    """Return the error inside a failed health check of Ray Train; any other failure unchanged.

    Public way: `ray.train.WorkerGroupError.worker_failures` holds the failed check, whose class has
    no public name; the error inside it is not its `__cause__`.
    """
    from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

    wrapped = isinstance(failure, WorkerHealthCheckFailedError)
    return failure.health_check_failure if wrapped else failure
