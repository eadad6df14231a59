"""Kill the processes of `cotbert train`: `python -m benchmarks.training_under_kills`.

Two workers train on two nodes of this machine, which `cotbert cluster up` would start. After an
undisturbed run, a worker, a node or the driver is killed in turn (SIGKILL), each at a random moment
of a run. A killed node is replaced, as an autoscaler would; a killed driver is started again. Each
run must end with the losses, dev scores and weights of the undisturbed run, bit for bit, and repeat
no more steps than lie between two checkpoints. In the last run a node is killed and not replaced:
the run must end with one worker and the same global batch. Not part of `make bench`, which must be
short.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cluster_run import (
    ClusterRun,
    check_elastic,
    check_equal,
    kill_one_worker,
    train_processes,
)
from benchmarks.harness import (
    DisagreementError,
    machine,
    machine_line,
    random_encoder,
    read_texts,
    text_parser,
)
from cluster import local, nodes
from cluster.nodes import LocalCluster
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.runtime.auth_token import TOKEN

HEADER = "killed", "after s", "at step", "steps again", "seconds", "more", "remains gone after s"
KINDS = ("worker", "node", "driver")
SENTENCES, STEPS, EVERY, BATCH = 2000, 40, 8, 32
# How long a run that may have fewer workers waits for a new node here; 180 s by default.
NODE_SECONDS = 10
# What a killed driver leaves must end by itself.
MOST_SECONDS_LEFT = 60.0


@dataclass(frozen=True)
class Ended:
    """A finished run.

    moment: seconds from the command's start to the kill. again: number of repeated steps. more:
    seconds longer than the undisturbed run. gone: seconds until all processes of a killed driver
    had ended.
    """

    kind: str
    moment: float
    step: int
    again: int
    seconds: float
    more: float = 0.0
    gone: float | None = None

    def line(self) -> str:
        gone = "" if self.gone is None else f"{self.gone:.1f}"
        return (
            f"| {self.kind} | {self.moment:.1f} | {self.step} | {self.again} | {self.seconds:.0f} "
            f"| {self.more:+.0f} | {gone} |"
        )


class Disturber:
    """The kinds of kills."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._node = cluster, 1

    def worker(self, run: ClusterRun) -> None:
        """Kill a worker, as soon as the run has one."""
        while run.running and not kill_one_worker(self._cluster):
            time.sleep(0.02)

    def node(self, run: ClusterRun) -> None:
        self.node_for_good(run)
        self.add_node()

    def node_for_good(self, run: ClusterRun) -> None:
        nodes.kill_node(self._cluster, self._node)

    def add_node(self) -> None:
        self._node += 1
        nodes.start(self._cluster, self._node)

    def driver(self, run: ClusterRun) -> float:
        """Kill the driver, and return the seconds until its processes on the cluster had ended."""
        before = train_processes(self._cluster)
        run.kill()
        started = time.monotonic()
        run.begin()
        while left := before & train_processes(self._cluster):
            if time.monotonic() - started > MOST_SECONDS_LEFT:
                raise DisagreementError(f"{sorted(left)} of a killed driver do not end")
            time.sleep(0.05)
        return time.monotonic() - started


def undisturbed(run: ClusterRun) -> Ended:
    run.begin()
    run.wait()
    return Ended("none", 0.0, 0, run.steps_done_again(), run.seconds)


def disturbed(
    run: ClusterRun, kind: str, kill: Callable[[ClusterRun], float | None], moment: float | None
) -> Ended:
    """Kill at a moment of a run; None: after its first checkpoint."""
    run.begin()
    while run.running and (run.last_step() <= EVERY if moment is None else run.age < moment):
        time.sleep(0.02)
    at, step = run.age, run.last_step()
    gone = kill(run)
    run.wait()
    return Ended(kind, at, step, run.steps_done_again(), run.seconds, gone=gone)


@contextmanager
def own_cluster(home: Path) -> Iterator[LocalCluster]:
    """Start two nodes of one core each, apart from any cluster of the user."""
    os.environ["COTBERT_CACHE"] = str(home / "cache")
    os.environ.setdefault(TOKEN, secrets.token_hex(32))
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{home / 'mlflow.db'}"
    cluster = local.up(nodes=2, cpus_per_node=1)
    try:
        yield cluster
    finally:
        local.down()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        corpus, encoder = home / "corpus", random_encoder(home / "encoder", 2, 128, 2)
        (home / "text.txt").write_text("\n".join(read_texts(options.text)[:SENTENCES]))
        with own_cluster(home) as cluster:
            prepare(PrepareOptions((str(home / "text.txt"),), str(encoder)), corpus)
            print(f"{machine_line(machine())}\n", flush=True)
            print(f"| {' | '.join(HEADER)} |\n| --- {'| ---: ' * 6}|", flush=True)
            command = (encoder, corpus, STEPS, EVERY, BATCH)
            quiet = ClusterRun(cluster, home / "quiet", *command)
            whole, disturber = undisturbed(quiet), Disturber(cluster)
            _tell(whole, whole)
            for number in range(options.kills):
                kind = options.kinds[number % len(options.kinds)]
                run = ClusterRun(cluster, home / f"{number}-{kind}", *command)
                moment = draw.uniform(0.0, whole.seconds)
                ended = disturbed(run, kind, getattr(disturber, kind), moment)
                _tell(ended, whole)
                check_equal(run.output, quiet.output)
                if ended.again > EVERY:  # more than lie between two checkpoints
                    raise DisagreementError(f"{run.output.name}: {ended.again} steps again")
            if options.elastic:
                fewer = {"min_workers": 1, "node_seconds": NODE_SECONDS}
                run = ClusterRun(cluster, home / "elastic", *command, fewer)
                kill = disturber.node_for_good
                _tell(disturbed(run, "node, for good", kill, None), whole)
                check_elastic(run.output, quiet.output, STEPS)
    return 0


def _tell(ended: Ended, whole: Ended) -> None:
    print(replace(ended, more=ended.seconds - whole.seconds).line(), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = text_parser("training_under_kills")
    parser.add_argument("--kills", type=int, default=10, help="a run each (default 10)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="in turn")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    parser.add_argument(
        "--no-elastic", dest="elastic", action="store_false", help="leave the last run out"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
