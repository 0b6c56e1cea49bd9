"""Manager and daemon together, from the response of a pod to its label, on one node full of pods.

The API server is real, the pods are hollow: the benchmark answers at their addresses, and their containers run in a
scripted runtime. Each pod has three probes with a period of 1 s: two httpGet, one tcpSocket.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from support.fake_runtime import ScriptedRuntime, served
from support.hollow import LABEL, pod_ip

from benchmarks import hollow
from benchmarks.manager import Cluster, ManagerBench, hollow_cluster
from benchmarks.process import Measured
from benchmarks.reporting import Row, emit, interpreter, machine_speed, percentile
from benchmarks.targets import EVERY_HOST, Pages, pages
from benchmarks.watching import WatchedPod

PATH = "/idle"
WARM_UP_SECONDS = 3.0
LATE_SECONDS = 5.0
LOOK_SECONDS = 0.05
PROBES_PER_POD = 3


@dataclass(frozen=True, kw_only=True)
class TogetherBench:
    """The command line."""

    manager: ManagerBench
    command: str
    ready: str
    rates: tuple[int, ...]
    seconds: float


async def measure(options: TogetherBench) -> list[Row]:
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        emit(row)

    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        cluster = await enter(hollow_cluster(options.manager))
        site = await enter(pages(EVERY_HOST))
        add(machine_speed())
        manager = await enter(cluster.manager(options.manager))
        daemon = await enter(_daemon(cluster, options))
        await cluster.api.json("POST", hollow.MARKERS_PATH, _marker(site.port))
        await cluster.pods.until(lambda pod: _shows(pod, "good"))
        for rate in options.rates:
            load = _FlipLoad(cluster, site)
            await asyncio.sleep(WARM_UP_SECONDS)
            manager.lap()
            daemon.lap()
            row = await load.run(rate, options.seconds)
            probes = PROBES_PER_POD * len(cluster.pods.objects) * options.seconds
            add(
                {
                    "benchmark": "together",
                    "label": options.manager.label,
                    "pods": len(cluster.pods.objects),
                    "probes_per_second": PROBES_PER_POD * len(cluster.pods.objects),
                    "results_per_second": rate,
                    **row,
                    "daemon_rss_mb": round(daemon.peak_mb, 1),
                    "manager_rss_mb": round(manager.peak_mb, 1),
                    "daemon_ms_per_probe": round(daemon.cpu_seconds / probes * 1000, 3),
                    "python": interpreter(),
                }
            )
        add(machine_speed())
    return rows


@asynccontextmanager
async def _daemon(cluster: Cluster, options: TogetherBench) -> AsyncIterator[Measured]:
    """The command, ready, with a runtime in which every pod's container runs."""
    runtime = ScriptedRuntime()
    ((node, pods),) = cluster.pods_of.items()
    for name, uid in pods:
        runtime.start(uid, ip=_address(name))
    async with (
        served(runtime) as endpoint,
        cluster.launcher.running(
            "daemon",
            options.command,
            options.ready,
            node=node,
            socket=endpoint.removeprefix("unix://"),
        ) as process,
    ):
        yield process


def _address(pod: str) -> str:
    return pod_ip(int(pod.split("-")[1]))


def _shows(pod: WatchedPod, text: str) -> bool:
    return pod.metadata.labels.get(LABEL) == text


def _marker(port: int) -> dict[str, Any]:
    """As `hollow.marker`, but with probes that the benchmark answers."""
    marker = hollow.marker(period_seconds=1)
    idle, healthy = marker["spec"]["probes"]
    idle["probe"] = _each_second({"httpGet": {"port": port, "path": PATH, "scheme": "HTTP"}})
    healthy["probe"] = _each_second(
        {"httpGet": {"port": port, "path": "/healthy", "scheme": "HTTP"}}
    )
    tcp: dict[str, Any] = {
        "name": "open",
        "containerName": "main",
        "podConditionType": "bench.kruise-probe.io/open",
    }
    tcp["probe"] = _each_second({"tcpSocket": {"port": port}})
    marker["spec"]["probes"] = [idle, healthy, tcp]
    return marker


def _each_second(handler: dict[str, Any]) -> dict[str, Any]:
    return handler | {"periodSeconds": 1, "timeoutSeconds": 1}


class _FlipLoad:
    """Flips one pod after the other, and notes when the label changes."""

    def __init__(self, cluster: Cluster, site: Pages) -> None:
        self._site = site
        self._pods = list(cluster.pods.objects)
        self._wanted: dict[str, str] = {}
        self._flipped: dict[str, float] = {}
        self._from_flip: list[float] = []
        self._from_response: list[float] = []
        self._now = {name: cluster.pods.objects[name].metadata.labels[LABEL] for name in self._pods}
        cluster.pods.on_event = self._changed

    async def run(self, rate: int, seconds: float) -> Row:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        turns = cycle(self._pods)
        skipped = 0
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(started_at + number / rate - loop.time(), 0))
            pod = next(turns)
            if pod in self._wanted:
                skipped += 1
                continue
            self._wanted[pod] = "bad" if self._now[pod] == "good" else "good"
            self._flipped[pod] = loop.time()
            self._site.responded.pop(_address(pod) + PATH, None)
            self._site.flip(_address(pod) + PATH)
        for _ in range(int(LATE_SECONDS / LOOK_SECONDS)):
            if not self._wanted:
                break
            await asyncio.sleep(LOOK_SECONDS)
        return {
            "results": len(self._from_response),
            "skipped": skipped,
            "missed": len(self._wanted),
            "flip_to_label_ms_p50": round(percentile(self._from_flip, 0.5) * 1000, 1),
            "response_to_label_ms_p50": round(percentile(self._from_response, 0.5) * 1000, 1),
            "response_to_label_ms_p99": round(percentile(self._from_response, 0.99) * 1000, 1),
        }

    def _changed(self, pod: WatchedPod) -> None:
        name = pod.metadata.name
        wanted = self._wanted.get(name)
        if wanted is None or not _shows(pod, wanted):
            return
        now = asyncio.get_running_loop().time()
        del self._wanted[name]
        self._now[name] = wanted
        self._from_flip.append(now - self._flipped.pop(name))
        self._from_response.append(now - self._site.responded[_address(name) + PATH])
