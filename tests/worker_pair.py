"""Two workers of a process group, each a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import torch.multiprocessing

# The modules that the workers need, imported once: importing them for each pair takes 15 s.
IMPORTED = ("benchmarks.gpu_jobs", "cotbert_core.methods", "pipelines.training.process_group")


def fork_server() -> multiprocessing.context.ForkServerContext:
    """Return a context whose processes are forked from a fresh one. A test's own process may have
    threads of Ray, and a process forked from it once hung on a lock that such a thread held."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    return context


def run_pair(work: Callable[..., None], arguments: tuple[Any, ...] = (), nprocs: int = 2) -> None:
    """Run `work(rank, *arguments)` in each process, to the end of all."""
    fork_server()
    torch.multiprocessing.start_processes(work, arguments, nprocs, start_method="forkserver")
