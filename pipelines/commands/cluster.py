"""cotbert cluster: its options, and the calls of its functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cotbert_core.errors import UserError
from pipelines.options.declare import RESOURCES, Option


@dataclass(frozen=True, kw_only=True)
class Cluster:
    action: Annotated[
        Literal["up", "down"],
        Option(
            "start a cluster and print its addresses, the job server's last (up), or stop that "
            "cluster (down)",
            positional=True,
        ),
    ]
    nodes: int | None = Option(
        "(up) start this many nodes", "N", group=RESOURCES, unit="nodes", default="2 nodes"
    ).field(None)
    cpus_per_node: int | None = Option(
        "(up) offer this many cores of each node to tasks",
        "N",
        group=RESOURCES,
        unit="cores",
        default="all cores, divided among the nodes",
    ).field(None)

    def run(self) -> None:
        from cluster import local
        from pipelines.runtime.progress import print_output, say
        from pipelines.runtime.ray_session import LOOPBACK

        if self.action == "down":
            for name in ("nodes", "cpus_per_node"):
                if getattr(self, name) is not None:
                    raise UserError(
                        f"--{name.replace('_', '-')} belongs to `cluster up`: leave it out"
                    )
            cluster, ended = local.down()
            had = f"stopped: {ended} processes" if ended else "had ended already"
            print_output(f"the cluster at {cluster.address} of {cluster.nodes} node(s) {had}")
            return
        cluster = local.up(2 if self.nodes is None else self.nodes, self.cpus_per_node)
        say(
            f"{cluster.nodes} node(s) of {cluster.cpus_per_node} core(s) are up; `cotbert submit "
            "-- COMMAND` runs a job there, `cotbert cluster down` ends them"
        )
        variables = {"RAY_AUTH_MODE": "token", **LOOPBACK, "RAY_ADDRESS": cluster.ray_address}
        for name, value in variables.items():
            print_output(f"{name}={value}")
        print_output(cluster.address)
