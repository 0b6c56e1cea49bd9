"""A node whose daemon is a process, between a scripted runtime and an embedded API server, and a victim of attacks on it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

from hostile.health import HealthChecks
from support.background import background
from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.fake_runtime import ExecCall, Script, ScriptedRuntime
from support.flood_servers import flooding
from support.hollow import spec_entry
from support.output import print_line
from support.programs import Program
from support.target import node_pod_probe_path, results_of
from support.wire import Json

from kruise_probe.daemon.cri.runtime import ExecResult

NODE = "scripted"
ADDRESS = "127.0.0.9"
VICTIM = "victim"
LONGEST_GAP_SECONDS = 5.0
"""Between two runs of a probe with a period of a second, and without the longest stall of this process: a machine that
stalls a test that only waits stalls the daemon too."""

TICK_SECONDS = 0.1
FLOODED_SECONDS = 8.0
TIMEOUT_SECONDS = 20
"""Far more than a flood lasts: a probe that needs this long was stopped by its timeout only."""


class ProcessNode:
    """A node whose containers have been running for a long time."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.runtime = ScriptedRuntime()
        self.cluster = cluster
        self.api = cluster.api
        self._entries: dict[str, Json] = {}

    def add_probe(
        self, name: str, probe: Json | None = None, *, script: Script | None = None
    ) -> None:
        """Starts a pod of that name, and adds its probe to what `write_spec` writes next; `script` is its command."""
        if script:
            self.runtime.on_exec("check", name, script=script)
            probe = {
                "exec": {"command": ["check", name]},
                **(probe or {}),
            }
        self.add_pod(name, [{"periodSeconds": 1, **(probe or {})}])

    def add_pod(
        self,
        name: str,
        probes: list[Json],
        *,
        namespace: str = "default",
        beside: Json | None = None,
    ) -> None:
        """Starts a pod, and adds its probes to what `write_spec` writes next, each with the fields `beside` it."""
        uid = f"uid-{name}"
        self.runtime.start(uid, ip=ADDRESS)
        listed: list[Json] = []
        for number, probe in enumerate(probes):
            fields = {
                "containerName": "main",
                "probe": probe,
                **(beside or {}),
            }
            listed.append({"name": f"m#{number}", **fields})
        self._entries[name] = spec_entry(
            name,
            uid,
            listed,
            namespace=namespace,
            ip=ADDRESS,
        )

    async def write_spec(self) -> None:
        """Writes all probes to the NodePodProbe."""
        change = {"spec": {"podProbes": list(self._entries.values())}}
        await self.api.merge(node_pod_probe_path(NODE), change)

    def states(self) -> dict[str, tuple[str, str]]:
        """State and message of each pod's probe in NodePodProbe.status."""
        report = self.api.node_pod_probes.newest(NODE) or {}
        states: dict[str, tuple[str, str]] = {}
        for (uid, _), result in results_of(report).items():
            states[uid.removeprefix("uid-")] = result
        return states

    async def until_results_of(self, names: Collection[str]) -> None:
        """Returns once the probe of each of these pods has a result."""
        await self.api.node_pod_probes.wait(
            "each probe has a result", lambda: self.states().keys() >= set(names)
        )


class Victim:
    """A pod whose command runs each second and prints how often it ran, while another pod attacks the daemon."""

    def __init__(self, node: ProcessNode) -> None:
        self.node = node
        self.since = 0.0
        self.stall = 0.0
        self._runs: list[float] = []
        node.add_probe(VICTIM, {"timeoutSeconds": 10}, script=self._count)

    async def _count(self, _: ExecCall) -> ExecResult:
        self._runs.append(asyncio.get_running_loop().time())
        return ExecResult(0, f"run {len(self._runs)}".encode(), b"")

    async def measure_stalls(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(TICK_SECONDS)
            self.stall = max(self.stall, loop.time() - began - TICK_SECONDS)

    async def assert_unaffected(
        self, daemon: Program, what: str, *, longest_gap_seconds: float = LONGEST_GAP_SECONDS
    ) -> None:
        """Asserts that the victim was probed and its results written."""
        now = asyncio.get_running_loop().time()
        runs = [at for at in self._runs if at > self.since]
        gaps = [end - begin for begin, end in pairwise([self.since, *runs, now])]
        longest_gap = max(gaps)
        lag = await daemon.metric("kruise_probe_loop_lag_seconds")
        print_line(
            f"{what}: victim's longest gap {longest_gap:.2f} s, stall of the test {self.stall:.2f} s, "
            f"loop lag {lag * 1000:.0f} ms, peak {daemon.peak_mb:.0f} MB"
        )
        assert longest_gap < longest_gap_seconds + self.stall
        number_of_runs = len(self._runs)

        def is_newer() -> bool:
            _, message = self.node.states()[VICTIM]
            number = message.removeprefix("run ")
            return number.isdecimal() and int(number) > number_of_runs  # not "command timed out"

        await self.node.api.node_pod_probes.wait("a newer result of the victim", is_newer)


@asynccontextmanager
async def process_node(folder: Path) -> AsyncIterator[ProcessNode]:
    async with embedded_cluster(folder) as cluster:
        await cluster.hollow.add_node_pod_probe(NODE)
        yield ProcessNode(cluster)


@asynccontextmanager
async def daemon_with_victim(node: ProcessNode) -> AsyncIterator[tuple[Program, Victim]]:
    """A daemon that must stay healthy, and a victim with a first result."""
    victim = Victim(node)
    async with node.cluster.daemon(NODE, node.runtime) as daemon:
        await daemon.ready()
        await node.write_spec()
        await node.until_results_of([VICTIM])
        victim.since = asyncio.get_running_loop().time()
        async with background(HealthChecks(daemon).repeat()), background(victim.measure_stalls()):
            yield daemon, victim


async def results_of_floods(
    folder: Path,
    floods: Mapping[str, tuple[bytes, bytes]],
    probe_of: Callable[[int], Json],
    tls: ssl.SSLContext | None,
) -> dict[str, tuple[str, str]]:
    """State and message of a probe of each flooding server; a victim must not be affected meanwhile."""
    with ExitStack() as servers:
        ports = {
            name: servers.enter_context(flooding(start, flood, host=ADDRESS, tls=tls))
            for name, (start, flood) in floods.items()
        }
        async with process_node(folder) as node, daemon_with_victim(node) as (daemon, victim):
            for name, port in ports.items():
                node.add_probe(name, {**probe_of(port), "timeoutSeconds": TIMEOUT_SECONDS})
            await node.write_spec()
            await asyncio.sleep(FLOODED_SECONDS)

            await victim.assert_unaffected(daemon, f"{len(ports)} floods")
            await node.until_results_of(ports)
            return {name: node.states()[name] for name in ports}
