"""A node whose daemon is a process, between a scripted runtime and an embedded API server."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from support.embedded_cluster import EmbeddedCluster, embedded_cluster
from support.fake_runtime import ExecCall, Script, ScriptedRuntime
from support.programs import Program
from support.target import node_pod_probe_path, results_of

from kruise_probe.api.times import utc_now
from kruise_probe.daemon.cri.runtime import ExecResult

Json = dict[str, Any]
NODE = "scripted"


class ProcessNode:
    """A node whose containers have been running for a long time.

    Attributes:
        exec_times: loop times at which each probe's command started, by the probe's name.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.runtime = ScriptedRuntime()
        self.exec_times: dict[str, list[float]] = {}
        self.cluster = cluster
        self.api = cluster.api
        self._entries: dict[str, Json] = {}

    def running(self, **flags: str) -> AbstractAsyncContextManager[Program]:
        """A daemon, for the length of a block."""
        more = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        return self.cluster.daemon(NODE, self.runtime, *more)

    def container(self, name: str, script: Script, *, new: bool = False) -> None:
        """A pod of that name, and the script of its command; `new` pods have just started."""
        container = self.runtime.start(f"uid-{name}", ip="127.0.0.9")
        if new:
            container.started_at = utc_now()

        async def noted(call: ExecCall) -> ExecResult:
            self.exec_times.setdefault(name, []).append(asyncio.get_running_loop().time())
            return await script(call)

        self.runtime.on_exec("check", name, script=noted)

    def add_pods(self, count: int, script: Script, **probe: int) -> None:
        """Pods with one probe each, with a period of a second."""
        for number in range(count):
            self.container(f"p{number}", script)
            self.add_probe(f"p{number}", None, periodSeconds=1, **probe)

    def add_probe(self, name: str, handler: Json | None = None, **probe: int) -> None:
        """Adds a probe of that pod to what `write_spec` writes next."""
        how = handler or {"exec": {"command": ["check", name]}}
        self._entries[name] = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "IP": "127.0.0.9",
            "probes": [
                {"name": "marker#probe", "containerName": "main", "probe": {**how, **probe}}
            ],
        }

    async def write_spec(self) -> float:
        """Writes all probes to the NodePodProbe; returns the loop time before the write."""
        at = asyncio.get_running_loop().time()
        change = {"spec": {"podProbes": list(self._entries.values())}}
        await self.cluster.api.merge(node_pod_probe_path(NODE), change)
        return at

    def states(self) -> dict[str, tuple[str, str]]:
        """State and message of each pod's probe in NodePodProbe.status."""
        results = results_of(self.api.node_pod_probes.newest(NODE) or {})
        return {uid.removeprefix("uid-"): result for (uid, _), result in results.items()}

    async def until_all_are(self, state: str, count: int) -> None:
        def so() -> bool:
            states = self.states().values()
            return len(states) == count and all(each[0] == state for each in states)

        await self.api.node_pod_probes.wait(f"{count} probes are {state}", so)

    async def until_results_of(self, names: Collection[str]) -> None:
        """Returns once the probe of each of these pods has a result."""
        await self.api.node_pod_probes.wait(
            "each probe has a result", lambda: self.states().keys() >= set(names)
        )

    def statuses(self, *, since: float) -> int:
        writes = self.cluster.proxy.writes(since=since)
        return sum(count for key, count in writes.items() if key.endswith("nodepodprobes/status"))

    def events(self, *, since: float) -> int:
        writes = self.cluster.proxy.writes(since=since)
        return sum(count for key, count in writes.items() if key.endswith("events"))


@asynccontextmanager
async def process_node(folder: Path) -> AsyncIterator[ProcessNode]:
    async with embedded_cluster(folder) as cluster:
        await cluster.hollow.add_node_pod_probe(NODE)
        yield ProcessNode(cluster)
