"""Run one function over many shards of input with Ray Data.

A shard is a part of the input that one task reads, processes and writes. The task returns a small
row of counts, so nothing large passes through the driver. Each shard is one block of a mapped
`ray.data.range`, so tasks do not depend on each other or on the number of workers. Without a Ray
session this process runs the function over the shards, one after another.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cotbert_core.errors import UserError, counted
from pipelines.runtime.cores import available_cores
from pipelines.runtime.placement import use_own_device
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import names_cluster, ray_runs

Row = dict[str, Any]

# Bytes of input that one process reads and encodes (13,000 short sentences in 15 s on 2 cores)
# about as fast as workers, which take 9 s to start.
FEW_BYTES = 1 << 20


def report_workers(requested: int | None, running: int, parts: int) -> None:
    """Show a note if the number of running workers differs from `requested` or they share cores.

    parts: number of parts of the input that are left; a worker takes one at a time.
    """
    if requested is None or not parts:
        return
    cores = available_cores()
    if ray_runs():
        import ray

        cores = int(ray.cluster_resources().get("CPU", 1))
    if running < requested:
        say(
            f"note: --workers is {requested} and {running} will run, at most one for each part of "
            f"the input that is left ({parts}), on {counted(cores, 'core')}"
        )
    elif running > cores:
        are = "is" if cores == 1 else "are"
        say(
            f"note: --workers is {requested} and there {are} {counted(cores, 'core')}, which they "
            "will share"
        )


def runs_alone(
    stamps: Mapping[str, Sequence[int]], workers: int | None = None, most: int = FEW_BYTES
) -> bool:
    """Return whether a job's own process does its work, so that Ray need not start.

    stamps: [size, ...] of each input file, together at most `most` bytes. workers: number that the
    user requested.
    """
    size = sum(size for size, *_ in stamps.values())
    return size <= most and workers is None and not names_cluster() and not ray_runs()


def map_shards(function: Callable[[Row], Row], count: int) -> Iterator[Row]:
    """Run `function({"id": i})` for i in 0..count-1 as tasks; yield results as they arrive."""
    if not count:
        return
    if not ray_runs():
        yield from _mapped_here(function, count)
        return
    import ray.data

    dataset = ray.data.range(count, override_num_blocks=count).map(partial(_packed, function))
    yield from _unpacked(dataset)


def map_shards_with_actors(
    actor: type,
    arguments: dict[str, Any],
    count: int,
    workers: int,
    resources: dict[str, float],
    calls: int = 1,
) -> Iterator[Row]:
    """Run `actor(**arguments)({"id": i})` on a pool of actors; yield results as they arrive.

    calls: how many shards each actor works on at a time, in threads of its own.
    """
    if not count:
        return
    if not ray_runs():
        yield from _mapped_here(actor(**arguments), count)
        return
    import ray.data

    dataset = ray.data.range(count, override_num_blocks=count).map(
        _PackedActor,
        fn_constructor_kwargs={"actor": actor, "arguments": arguments},
        # Shards are not queued at actors: one queued at the first actor to start, seconds to
        # minutes of work, would wait there while another actor starts and then idles.
        compute=ray.data.ActorPoolStrategy(
            size=workers,
            max_tasks_in_flight_per_actor=calls,
            max_concurrent_calls_per_actor=calls,
            enable_true_multi_threading=calls > 1,
        ),
        **resources,
    )
    yield from _unpacked(dataset)


def _mapped_here(function: Callable[[Row], Row], count: int) -> Iterator[Row]:
    return (function({"id": number}) for number in range(count))


class _PackedActor:
    """An actor that packs its results and uses the device that Ray assigned to it."""

    def __init__(self, actor: type, arguments: dict[str, Any]) -> None:
        use_own_device()
        self._call = actor(**arguments)

    def __call__(self, row: Row) -> Row:
        return _packed(self._call, row)


def _packed(function: Callable[[Row], Row], row: Row) -> Row:
    """Return the packed result, or UserError, which Ray Data would wrap in an error of its own."""
    try:
        return {"result": pickle.dumps(function(row))}
    except UserError as error:
        return {"result": pickle.dumps(error)}


def _unpacked(dataset: Any) -> Iterator[Row]:
    for row in dataset.iter_rows():
        result = pickle.loads(row["result"])
        if isinstance(result, UserError):
            raise result
        yield result
