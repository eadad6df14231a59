"""cotbert cluster: its options, and the calls they become."""

from __future__ import annotations

import argparse

from pipelines.commands.options import Arguments


def add_options(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True, metavar="up|down")
    up = actions.add_parser(
        "up",
        help="bring a cluster up; its addresses are printed, the job server's last",
    )
    up.add_argument("--nodes", type=int, default=2, metavar="N", help="how many (default: 2)")
    up.add_argument(
        "--cpus-per-node",
        type=int,
        metavar="N",
        help="that tasks may use (default: the cores, shared out)",
    )
    down = actions.add_parser("down", help="stop what `up` started, and nothing else")
    for action in (up, down):
        action.add_argument("--verbose", action="store_true", help="show errors whole")


def run(arguments: Arguments) -> None:
    from cluster import local
    from pipelines.runtime.progress import say, show
    from pipelines.runtime.ray_session import LOOPBACK

    if arguments.action == "down":
        cluster, ended = local.down()
        had = f"stopped: {ended} processes" if ended else "had ended already"
        show(f"the cluster at {cluster.address} of {cluster.nodes} node(s) {had}")
        return
    cluster = local.up(arguments.nodes, arguments.cpus_per_node)
    say(
        f"{cluster.nodes} node(s) of {cluster.cpus_per_node} core(s) are up; `cotbert submit -- "
        "COMMAND` runs a job there, `cotbert cluster down` ends them"
    )
    variables = {"RAY_AUTH_MODE": "token", **LOOPBACK, "RAY_ADDRESS": cluster.ray_address}
    for name, value in variables.items():
        show(f"{name}={value}")
    show(cluster.address)
