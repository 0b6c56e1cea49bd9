"""`hack/bench`."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from benchmarks import daemon as daemon_bench
from benchmarks import manager as manager_bench
from benchmarks import scale as scale_bench
from benchmarks import server as server_bench
from benchmarks.cluster import ManagerBench
from benchmarks.reporting import Row, medians, progress, table


@click.group(context_settings={"show_default": True, "max_content_width": 110})
def main() -> None:
    """Measures kruise-probe, or another program in its place.

    Prints one JSON line for each figure to stdout, and progress and a table of medians to stderr.
    """


def _repeat(runs: int, measure: Callable[[], Coroutine[Any, Any, list[Row]]]) -> None:
    done: list[list[Row]] = []
    for number in range(1, runs + 1):
        if runs > 1:
            progress(f"run {number} of {runs}")
        done.append(asyncio.run(measure()))
    table(medians(done))


runs_option = click.option("--runs", default=1, help="Number of runs; the table shows medians.")
in_pod_option = click.option(
    "--in-pod",
    is_flag=True,
    help="Use a service account's files instead of a kubeconfig (root only).",
)
ready_option = click.option(
    "--ready",
    default="http://127.0.0.1:{health}/readyz",
    help="URL that returns 200 when it is ready.",
)
label_option = click.option("--label", default="kruise-probe", help="Name in the figures.")


@main.command()
@click.option(
    "--cmd",
    default=manager_bench.OURS,
    help="The manager; {kubeconfig}, {health} and {metrics} (ports) are filled in.",
)
@ready_option
@label_option
@click.option(
    "--crds",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="CRDs (files or folders) instead of ours.",
)
@in_pod_option
@click.option("--nodes", default=500)
@click.option("--pods", default=5000)
@click.option(
    "--floor/--no-floor", default=True, help="Also measure a bare loop of the same patches."
)
@click.option(
    "--rate",
    "rates",
    type=float,
    multiple=True,
    help="Results per second that change, one pod after the other; repeat the option for several rates.",
)
@click.option("--rate-seconds", default=15.0, help="Duration of each rate.")
@click.option(
    "--time-limit",
    type=float,
    help="Seconds after which a run ends, with the figures that it has. A run of 150,000 pods takes two hours.",
)
@runs_option
def manager(runs: int, cmd: str, **options: Any) -> None:
    """A manager with hollow nodes and pods on a real API server."""
    bench = ManagerBench(command=cmd, **options)
    _repeat(runs, lambda: manager_bench.measure(bench))


@main.command()
@click.option(
    "--cmd",
    default=daemon_bench.OURS,
    help="The daemon; {kubeconfig}, {node}, {socket} and {health} (a port) are filled in.",
)
@ready_option
@label_option
@click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    required=True,
    help="Cluster whose node is this machine (see hack/cluster env).",
)
@click.option(
    "--socket",
    envvar="KRUISE_PROBE_CRI_ENDPOINT",
    required=True,
    callback=lambda _c, _p, value: value.removeprefix("unix://"),
    help="Socket of the node's container runtime.",
)
@click.option("--pods", default=30)
@click.option("--seconds", default=20.0, help="Duration of each load.")
@click.option(
    "--image",
    default=daemon_bench.IMAGE,
    help="Image on the node, with the commands sleep and true.",
)
@in_pod_option
@click.option(
    "--mixed-rate",
    "mixed_rates",
    type=int,
    multiple=True,
    default=(300,),
    help="Probes per second of the load mixed; repeat the option for several rates.",
)
@click.option(
    "--tcp-rate",
    "tcp_rates",
    type=int,
    multiple=True,
    default=(1000,),
    help="Probes per second of the load tcp; repeat the option for several rates.",
)
@click.option(
    "--load",
    "loads",
    multiple=True,
    type=click.Choice(daemon_bench.LOADS),
    default=daemon_bench.LOADS,
    help="Loads to run.",
)
@runs_option
def daemon(runs: int, cmd: str, **options: Any) -> None:
    """A daemon with containers of a real node (needs root for the runtime's socket)."""
    bench = daemon_bench.DaemonBench(command=cmd, **options)
    _repeat(runs, lambda: daemon_bench.measure(bench))


@main.command()
@click.option(
    "--size",
    "sizes",
    multiple=True,
    nargs=2,
    type=int,
    default=((500, 5000), (5000, 50000)),
    help="Nodes and pods; repeat the option for several sizes.",
)
@runs_option
def scale(runs: int, sizes: tuple[tuple[int, int], ...]) -> None:
    """The manager's caches, planner and reconcilers in one process without an API server: growth with nodes and pods."""
    _repeat(runs, lambda: scale_bench.measure(sizes))


@main.command()
@click.option("--base", default="HEAD", help="Revision of Git to compare with.")
@click.option(
    "--pods",
    "sizes",
    type=int,
    multiple=True,
    default=(110, 30),
    help="Pods in the NodePodProbe, with three probes each; repeat the option for several sizes.",
)
@click.option("--writes", default=20, help="Writes of a version in its turn.")
@click.option("--turns", default=10, help="Turns of each version; a figure is their median.")
def server(**options: Any) -> None:
    """The API server's CPU for one changed result, and the bytes of a probe, beside another revision."""
    bench = server_bench.ServerBench(**options)
    table(asyncio.run(server_bench.measure(bench)))


main(prog_name="hack/bench")
