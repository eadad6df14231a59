"""The threads of torch on a CPU: how many, and independent pieces of inference in parallel."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
# torch's number of threads applies to the whole process while a new thread starts.
_LOCK = threading.Lock()


def set_threads(threads: int) -> None:
    """Let torch compute with this many threads, or with fewer if OpenMP may start fewer.

    In bf16 torch leaves the part of a product uncomputed whose thread OpenMP did not start, without
    an error (docs/upstream.md).
    """
    torch.set_num_threads(min(threads, _openmp_threads(threads)))


def keep_threads_started() -> None:
    """Lower torch's number of threads to that which OpenMP starts."""
    threads = torch.get_num_threads()
    if _openmp_threads(threads) < threads:
        set_threads(threads)


def _openmp_threads(threads: int) -> int:
    """Return how many of these threads OpenMP starts at any time, by its variables."""
    if os.environ.get("OMP_DYNAMIC", "").strip().lower() == "true":
        return 1  # as many as the machine's load allows
    limit = os.environ.get("OMP_THREAD_LIMIT", "").strip()
    return max(1, int(limit)) if limit.isdecimal() else threads


def map_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return `function` of each item, computed in as many threads as torch uses for one operation.

    Gradients are disabled; inference mode and autocast are the caller's. Threads that share an
    operation wait for each other at its end, parallel batches do not. On 2 cores of an Intel Xeon
    (2026-11-22) this saves 8 % of `encode()`, and 20 % in a Ray worker, beside the cluster's own
    processes. The threads end with the call: threads that stay keep what torch prepared for the
    products of each shape, 850 MiB after 80 blocks, and saved only 2 % of 32 sentences.
    """
    with _LOCK:
        total = torch.get_num_threads()
        threads = min(total, len(items))
        if threads < 2:
            return [function(item) for item in items]
        # A new thread does not inherit the caller's modes.
        inference = torch.is_inference_mode_enabled()
        enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def one(item: Item) -> Result:
            cast = torch.autocast("cpu", dtype, enabled=enabled)
            with torch.inference_mode(inference), torch.no_grad(), cast:
                return function(item)

        try:
            with ThreadPoolExecutor(
                threads, "encode", lambda: torch.set_num_threads(total // threads)
            ) as pool:
                return list(pool.map(one, items))
        finally:
            torch.set_num_threads(total)
