"""Check that all nodes of a cluster see the folders that a job reads and writes.

Without shared storage a job would leave its parts on the disks of different machines.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, first_line
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import names_cluster, ray_runs, ray_session

# A network file system may show a new file to other machines with a delay.
VISIBLE_SECONDS, ANSWER_SECONDS = 5.0, 60.0
# Maximum number of input files to check; the others are assumed to be in the same folders.
MOST_FILES = 1000


@contextmanager
def on_all_nodes(output: Path, inputs: Iterable[str | Path]) -> Iterator[None]:
    """Open a Ray session on a cluster and check that its nodes see the output and the inputs.

    Raises UserError if a node does not. Does nothing without a cluster. inputs: paths to check;
    those that are not absolute (hub names, addresses) are skipped.
    """
    if not _has_cluster():
        yield
        return
    with ray_session():
        local = dict.fromkeys(str(path) for path in inputs if os.path.isabs(path))
        check_visible(output, list(local)[:MOST_FILES])
        yield


def _has_cluster() -> bool:
    """Return whether the job may use a cluster whose nodes have not been checked.

    This process may have a cluster's session whatever the environment says. A sweep has already
    made the check for the processes of its trials.
    """
    if ray_runs():
        import ray

        return ray.get_runtime_context().get_actor_id() is None
    return names_cluster()


def check_visible(output: Path, inputs: Sequence[str]) -> None:
    """Raise UserError if a node of the session does not see the output's folder or an input."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2:
        return
    with _probe(output) as probe:
        unseen = _invisible_by_node(nodes, [str(probe), *inputs])
    for node, paths in unseen.items():
        path = str(output) if paths[0] == str(probe) else paths[0]
        raise UserError(
            f"node {node} of the cluster does not see {path!r}: give a path on storage that all "
            "nodes share, mounted at the same place"
        )


@contextmanager
def _probe(output: Path) -> Iterator[Path]:
    """Create a file in the output folder, or its nearest existing parent, during the block."""
    home = next(folder for folder in (output, *output.parents) if folder.is_dir())
    path = home / f".cotbert-probe-{secrets.token_hex(8)}"
    try:
        path.write_text("")
    except OSError as error:
        raise UserError(f"output {str(output)!r} cannot be written ({error})") from None
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _invisible_by_node(
    nodes: Sequence[Mapping[str, Any]], paths: list[str]
) -> dict[str, list[str]]:
    """Return, for each node that does not see all paths, the paths that it does not see."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(invisible_paths)
    nodes_of = {}
    for node in nodes:
        affinity = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"
        nodes_of[look.options(scheduling_strategy=affinity).remote(paths)] = name
    answered, silent = ray.wait(
        list(nodes_of), num_returns=len(nodes_of), timeout=ANSWER_SECONDS, fetch_local=False
    )
    for reference in silent:
        say(f"warning: node {nodes_of[reference]} did not report whether it sees the job's folders")
        ray.cancel(reference, force=True)
    found = {}
    for reference in answered:
        try:
            found[nodes_of[reference]] = ray.get(reference)
        except ray.exceptions.RayError as error:  # it was lost meanwhile
            say(f"warning: node {nodes_of[reference]} was not checked ({first_line(error)})")
    return {node: missing for node, missing in found.items() if missing}


def invisible_paths(paths: list[str], seconds: float = VISIBLE_SECONDS) -> list[str]:
    """Return the paths that this machine does not see within `seconds`."""
    until = time.monotonic() + seconds
    while missing := [path for path in paths if not os.path.exists(path)]:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return missing
