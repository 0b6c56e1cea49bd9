"""`hack/bench`."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from benchmarks import daemon as daemon_bench
from benchmarks import decode as decode_bench
from benchmarks import latency as latency_bench
from benchmarks import manager as manager_bench
from benchmarks import plot as plotting
from benchmarks import queue as queue_bench
from benchmarks import scale as scale_bench
from benchmarks import together as together_bench
from benchmarks.reporting import Row, medians, say, table


@click.group(context_settings={"show_default": True, "max_content_width": 110})
def main() -> None:
    """Measures kruise-probe, or a peer in its place.

    Figures go to stdout, one JSON object per line; progress and a table of medians to stderr.
    """


def _repeat(runs: int, measure: Callable[[], Coroutine[Any, Any, list[Row]]]) -> None:
    done: list[list[Row]] = []
    for number in range(1, runs + 1):
        if runs > 1:
            say(f"run {number} of {runs}")
        done.append(asyncio.run(measure()))
    table(medians(done))


runs_option = click.option("--runs", default=1, help="Repeats it; the table shows medians.")


def manager_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which manager, and where."""
    for option in (
        click.option(
            "--in-pod",
            is_flag=True,
            help="Run it with a service account's files instead of a kubeconfig (root only).",
        ),
        click.option(
            "--crds",
            multiple=True,
            type=click.Path(exists=True, path_type=Path),
            help="CRDs (files or folders) instead of ours, for a peer.",
        ),
        click.option(
            "--kubeconfig",
            help="API server to use; without it a control plane is started, and ended, by hack/cluster.",
        ),
        click.option("--label", default="kruise-probe", help="Its name in the figures."),
        click.option(
            "--ready",
            default="http://127.0.0.1:{health}/readyz",
            help="URL that answers 200 when it is ready.",
        ),
        click.option(
            "--cmd",
            default=manager_bench.OURS,
            help="The manager; {kubeconfig}, {health} and {metrics} (ports) are filled in.",
        ),
    ):
        command = option(command)
    return command


@main.command()
@manager_options
@click.option("--nodes", default=500)
@click.option("--pods", default=5000)
@click.option("--floor/--no-floor", default=True, help="Also the bare loop of the same patches.")
@runs_option
def manager(runs: int, cmd: str, **given: Any) -> None:
    """A manager at work on hollow nodes and pods of a real API server."""
    options = manager_bench.Options(command=cmd, **given)
    _repeat(runs, lambda: manager_bench.measure(options))


@main.command()
@manager_options
@click.option("--nodes", default=100)
@click.option("--pods", default=1000)
@click.option(
    "--rate",
    "rates",
    type=int,
    multiple=True,
    default=(1, 10, 50, 100),
    help="Results a second; several one after the other.",
)
@click.option("--seconds", default=15.0, help="Of each rate.")
@runs_option
def latency(runs: int, cmd: str, rates: tuple[int, ...], seconds: float, **given: Any) -> None:
    """From a result to the label on the pod, at rising load."""
    options = manager_bench.Options(command=cmd, floor=False, **given)
    _repeat(runs, lambda: latency_bench.measure(options, rates=rates, seconds=seconds))


@main.command()
@manager_options
@click.option("--pods", default=110)
@click.option(
    "--daemon-cmd",
    default=daemon_bench.OURS,
    help="The daemon; {kubeconfig}, {node}, {socket} and {health} (a port) are filled in.",
)
@click.option(
    "--daemon-ready",
    default="http://127.0.0.1:{health}/readyz",
    help="URL that answers 200 when it is ready.",
)
@click.option(
    "--rate",
    "rates",
    type=int,
    multiple=True,
    default=(3, 10, 30),
    help="Results a second; several one after the other.",
)
@click.option("--seconds", default=33.3, help="Of each rate.")
@runs_option
def together(
    runs: int,
    cmd: str,
    daemon_cmd: str,
    daemon_ready: str,
    rates: tuple[int, ...],
    seconds: float,
    **given: Any,
) -> None:
    """Manager and daemon, on one node with three probes a pod: from the answer of a pod to its label."""
    options = together_bench.Options(
        manager=manager_bench.Options(command=cmd, nodes=1, floor=False, **given),
        command=daemon_cmd,
        ready=daemon_ready,
        rates=rates,
        seconds=seconds,
    )
    _repeat(runs, lambda: together_bench.measure(options))


@main.command()
@click.option("--pods", default=5000)
@click.option("--peers/--no-peers", default=True, help="Also other ways to decode the same bytes.")
@runs_option
def decode(runs: int, pods: int, peers: bool) -> None:
    """A list of pods: CPU to decode and memory to keep, per pod."""
    _repeat(runs, lambda: decode_bench.measure(pods, peers=peers))


@main.command()
@click.option("--rounds", default=20, help="Of 5,000 keys each.")
@runs_option
def queue(runs: int, rounds: int) -> None:
    """The workqueue: CPU per key."""
    _repeat(runs, lambda: queue_bench.measure(rounds))


@main.command()
@click.option(
    "--cmd",
    default=daemon_bench.OURS,
    help="The daemon; {kubeconfig}, {node}, {socket} and {health} (a port) are filled in.",
)
@click.option(
    "--ready",
    default="http://127.0.0.1:{health}/readyz",
    help="URL that answers 200 when it is ready.",
)
@click.option("--label", default="kruise-probe", help="Its name in the figures.")
@click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    required=True,
    help="Cluster whose node this machine is, as hack/cluster env says.",
)
@click.option(
    "--socket",
    envvar="KRUISE_PROBE_CRI_ENDPOINT",
    required=True,
    callback=lambda _c, _p, value: value.removeprefix("unix://"),
    help="Socket of the node's container runtime.",
)
@click.option(
    "--results-kubeconfig",
    help="API server of the NodePodProbe; without it a control plane is started, and ended.",
)
@click.option("--pods", default=30)
@click.option("--seconds", default=20.0, help="Of each load.")
@click.option(
    "--image", default=daemon_bench.IMAGE, help="An image with sleep and true that is on the node."
)
@click.option(
    "--in-pod",
    is_flag=True,
    help="Run it with a service account's files instead of a kubeconfig (root only).",
)
@click.option(
    "--tcp-rate",
    "tcp_rates",
    type=int,
    multiple=True,
    default=(1000,),
    help="Probes a second of the load tcp; several one after the other.",
)
@click.option(
    "--load",
    "loads",
    multiple=True,
    type=click.Choice(daemon_bench.LOADS),
    default=daemon_bench.LOADS,
    help="Only these.",
)
@runs_option
def daemon(runs: int, cmd: str, **given: Any) -> None:
    """A daemon at work on containers of a real node (needs root, for the runtime's socket)."""
    options = daemon_bench.Options(command=cmd, **given)
    _repeat(runs, lambda: daemon_bench.measure(options))


@main.command()
@click.option(
    "--size",
    "sizes",
    multiple=True,
    nargs=2,
    type=int,
    default=((50, 500), (200, 2000), (500, 5000), (2000, 20000), (5000, 150000)),
    help="Nodes and pods; several one after the other.",
)
@runs_option
def scale(runs: int, sizes: tuple[tuple[int, int], ...]) -> None:
    """The manager's caches and planner in one process, without an API server: growth with nodes and pods."""
    _repeat(runs, lambda: scale_bench.measure(sizes))


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default="docs",
    help="Folder of the drawings.",
)
def plot(files: tuple[Path, ...], out: Path) -> None:
    """Draws growth and latency, as SVG, from files of JSON lines that the others printed."""
    for path in plotting.draw(plotting.read(files), out):
        say(f"wrote {path}")


main(prog_name="hack/bench")
