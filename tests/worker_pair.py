"""Two workers of a process group, each a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import torch.multiprocessing

# What the workers import, once for all pairs: anew for each it takes 15 s.
IMPORTED = ("benchmarks.gpu_jobs", "cotbert_core.methods", "pipelines.training.process_group")


def fork_server() -> multiprocessing.context.ForkServerContext:
    """Processes forked from a fresh one: in a test's own, Ray may have threads, and one fork of a
    thousand waited for ever for a lock that a thread had held."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def run_pair(work: Callable[..., None], arguments: tuple[Any, ...] = (), nprocs: int = 2) -> None:
    """Run `work(rank, *arguments)` in each process, to the end of all."""
    fork_server()
    torch.multiprocessing.start_processes(work, arguments, nprocs, start_method="forkserver")
