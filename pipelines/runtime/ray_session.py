"""Start Ray when a job needs it, and keep it quiet unless its output is wanted."""

from __future__ import annotations

import logging
import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from pipelines.runtime import processes, ray_private
from pipelines.runtime.auth_token import check_mode, ensure_own_token
from pipelines.runtime.cores import available_cores
from pipelines.runtime.lost_nodes import lost_nodes_reported
from pipelines.runtime.lost_ray import sudden_end_reported
from pipelines.runtime.progress import is_verbose
from pipelines.runtime.ray_folders import private_folder
from pipelines.runtime.ray_log import LOGGERS, ray_log, write_lines
from pipelines.runtime.stop_signals import restored_signal_handlers

# Environment variables set before Ray is imported, which its worker processes inherit.
_QUIET = {
    # Number of malloc arenas. With glibc's default of eight per core, each keeps the memory that a
    # thread once used: an embed worker takes 977 instead of 835 MiB after 100,000 rows.
    "MALLOC_ARENA_MAX": "2",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    # Its C++ handler of SIGTERM would be replaced by the system's at Ray's end: a SIGTERM from then
    # on would end this process without a word.
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # notices the end of a run after 0.5 s, not 2 s
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "true",
}
# Without this variable Ray replaces 127.0.0.1 by the machine's network address. The nodes and
# drivers of a cluster on loopback need it.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

# The address of a Ray of this machine, as `ray.init` takes it.
LOCAL = "local"
# Timeout of a connection to the cluster's port, which answers at once if it is open.
ANSWER_SECONDS = 10.0


def names_cluster() -> bool:
    """Return whether RAY_ADDRESS names a cluster; without it Ray runs on this machine."""
    return _address() != LOCAL


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or LOCAL


def ray_runs() -> bool:
    """Return whether this process is connected to Ray, without importing it."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


@contextmanager
def ray_session(log: Path | None = None) -> Iterator[None]:
    """Connect to the cluster of RAY_ADDRESS, or start Ray on this machine, for the block.

    An existing session is used and left running. log: folder of ray.log, which gets Ray's warnings
    unless its own output is shown.
    """
    log = None if is_verbose() else log
    with _connected(log), nullcontext() if log is None else ray_log(log):
        yield


@contextmanager
def _connected(log: Path | None) -> Iterator[None]:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if not is_verbose():
        # Ray's C++ code also writes to standard error, including harmless warnings of Ray Data.
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    import ray

    if ray.is_initialized():
        yield
        return
    address = _address()
    is_local = address == LOCAL
    if is_local:
        check_installation()
        check_mode()
        ensure_own_token()
        # Each run would start a process that watches for preempted nodes: 2 s of a core.
        os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
    else:
        check_address(address)
    private: AbstractContextManager[dict[str, Any]] = _own_ray() if is_local else nullcontext({})
    messages = nullcontext() if is_verbose() else ray_private.messages_to(partial(_write, log))
    with sudden_end_reported(), private as options, messages:
        try:
            _init(address, log, options)
            with nullcontext() if is_local else lost_nodes_reported():
                yield
        finally:
            known = processes.ray_processes() if is_local else set()
            ray.shutdown()
            # A worker that was still starting outlives Ray by a second, and all processes outlive a
            # Ray that did not start in time: they would recreate its removed folders, mode 0777.
            processes.kill(known)


def _init(address: str, log: Path | None, options: Mapping[str, Any]) -> None:
    """Connect to a cluster, or start Ray. options: further ones of `ray.init`."""
    import ray

    verbose = is_verbose()

    with (
        nullcontext() if verbose else _silence(log),
        _cluster_errors(address),
        restored_signal_handlers(),
    ):
        ray.init(
            address=address,
            job_config=ray_private.job_config(),
            logging_level=logging.INFO if verbose else logging.ERROR,
            log_to_driver=verbose,
            **options,
        )
    _quieten()


@contextmanager
def _own_ray() -> Iterator[dict[str, Any]]:
    """Yield the options of `ray.init` for a private Ray that other users cannot reach.

    Ray gives all its folders of logs and sockets mode 0777, so they are put into a private folder.
    All its sockets are bound to 127.0.0.1. It has the GPUs that torch can use: Ray would also count
    those of which torch's build, for a CPU or for another maker's GPUs, knows nothing.
    """
    from cotbert_core.training.devices import usable_gpus

    previous = {name: os.environ.get(name) for name in LOOPBACK}
    os.environ.update(LOOPBACK)
    try:
        with (
            private_folder() as folder,
            ray_private.loopback_address(),
            ray_private.free_agent_port(),
        ):
            yield {
                "include_dashboard": False,
                "num_cpus": available_cores(),
                "num_gpus": usable_gpus(),
                **ray_private.temporary_folder(folder / "r"),
            }
    finally:
        for name, value in previous.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def check_installation() -> None:
    """Raise a UserError if Ray cannot start workers from where this program is installed.

    It reads an apostrophe in their path as a quotation mark, and waits for them without end.
    """
    if "'" in sys.prefix:
        raise UserError(
            f"this program is installed in {sys.prefix!r}, and Ray starts no worker from a path "
            "with an apostrophe: install it in another folder"
        )


def check_address(address: str) -> None:
    """Raise a UserError if nothing listens at HOST:PORT, which Ray would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdecimal()):
        return  # such as `auto`, which Ray resolves
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster answers at RAY_ADDRESS {address!r} ({error}): correct it, or "
            "unset it to run on this machine"
        ) from None


@contextmanager
def _cluster_errors(address: str) -> Iterator[None]:
    """Raise a UserError when a cluster refuses this process (another version, another token)."""
    try:
        yield
    except Exception as error:
        if address == LOCAL:
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UserError(
            f"the Ray cluster at RAY_ADDRESS {address!r} cannot be used ("
            f"{' '.join(lines)[:300] or type(error).__name__}): check its version and its token; "
            "if it has one, also set RAY_AUTH_MODE=token"
        ) from error


@contextmanager
def _silence(log: Path | None) -> Iterator[None]:
    """Hide warnings and standard error, to which Ray's C++ code writes directly, in the block.

    log: folder of ray.log, to which the captured standard error is written.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as written, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            written.seek(0)
            _write(log, written.read().decode(errors="replace"))


def _write(log: Path | None, text: str) -> None:
    if log is not None:
        write_lines(log, text)


def _quieten() -> None:
    import ray.data

    context = ray.data.DataContext.get_current()
    verbose = is_verbose()
    context.enable_progress_bars = context.print_on_execution_start = verbose
    level = logging.INFO if verbose else logging.ERROR
    for name in LOGGERS:
        logging.getLogger(name).setLevel(level)
