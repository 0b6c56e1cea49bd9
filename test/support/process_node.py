"""A node whose daemon is a process, between a scripted runtime and an embedded API server; seen from both sides."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support import programs
from support.fake_runtime import ExecCall, Script, ScriptedRuntime, served
from support.proxy import FaultyProxy, faulty_proxy
from support.world import World, following

from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.manifests.crds import all_crds
from kruise_probe.playground.apiserver.server import EmbeddedApiServer
from kruise_probe.playground.apiserver.users import NO_TOKENS
from kruise_probe.playground.raw_api import RawApi, node_pod_probe_path

Json = dict[str, Any]
NODE = "scripted"


class ProcessNode:
    """A node whose every container runs since long, and knows when its commands began.

    Attributes:
        began: loop times at which a probe's command began, by the probe's name.
    """

    def __init__(
        self, api: RawApi, world: World, proxy: FaultyProxy, folder: Path, endpoint: str
    ) -> None:
        self.runtime = ScriptedRuntime()
        self.began: dict[str, list[float]] = {}
        self.api = api
        self.world = world
        self.proxy = proxy
        self._folder = folder
        self._endpoint = endpoint
        self._entries: dict[str, Json] = {}

    def running(self, **flags: str) -> Any:
        """A daemon, for the length of a block."""
        kubeconfig = self.proxy.write_kubeconfig(self._folder)
        wanted = (f"--node-name={NODE}", f"--cri-endpoint={self._endpoint}")
        more = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        return programs.running("daemon", kubeconfig, self._folder, *wanted, *more)

    def container(self, name: str, script: Script, *, new: bool = False) -> None:
        """A pod of that name, and what its command does."""
        container = self.runtime.start(f"uid-{name}", ip="127.0.0.9")
        if new:
            container.started_at = utc_now()

        async def noted(call: ExecCall) -> ExecResult:
            self.began.setdefault(name, []).append(asyncio.get_running_loop().time())
            return await script(call)

        self.runtime.on_exec("check", name, script=noted)

    def crowd(self, count: int, script: Script) -> None:
        """So many pods, each probed once a second."""
        for number in range(count):
            self.container(f"p{number}", script)
            self.wish(f"p{number}", periodSeconds=1)

    def wish(self, name: str, handler: Json | None = None, **probe: int) -> None:
        """Puts a probe of that pod into the next `ask`."""
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

    async def ask(self) -> float:
        """Writes all wishes to the node's report; returns the loop time before it."""
        at = asyncio.get_running_loop().time()
        change = {"spec": {"podProbes": list(self._entries.values())}}
        await self.api.merge(node_pod_probe_path(NODE), change)
        return at

    def states(self) -> dict[str, tuple[str, str]]:
        """State and message of each pod's probe, as published."""
        report = self.world.reports.newest(NODE) or {}
        return {
            entry["name"]: (each["state"], each.get("message", ""))
            for entry in report.get("status", {}).get("podProbeStatuses") or ()
            for each in entry["probeStates"]
        }

    async def all_are(self, state: str, count: int) -> None:
        def so() -> bool:
            states = self.states().values()
            return len(states) == count and all(each[0] == state for each in states)

        await self.world.reports.wait(f"{count} probes are {state}", so)

    async def have_results(self, names: Collection[str]) -> None:
        """Returns once each of these pods' probes has a result."""
        await self.world.reports.wait(
            "each probe has a result", lambda: self.states().keys() >= set(names)
        )

    def statuses(self, *, since: float) -> int:
        return self.proxy.writes(since=since)["patch nodepodprobes/status"]

    def events(self, *, since: float) -> int:
        return sum(n for key, n in self.proxy.writes(since=since).items() if key.endswith("events"))


@asynccontextmanager
async def process_node(folder: Path) -> AsyncIterator[ProcessNode]:
    async with EmbeddedApiServer(crds=all_crds(), tokens=NO_TOKENS) as server:
        config = ClusterConfig.plain(server.url)
        client = RestClient(config=config, field_manager="test", user_agent="test")
        async with client, faulty_proxy(server.url) as proxy, following(client) as world:
            api = RawApi(client)
            await api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
            await api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
            report = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "NodePodProbe"}
            await api.create(
                node_pod_probe_path("").rstrip("/"),
                {**report, "metadata": {"name": NODE}, "spec": {}},
            )
            with tempfile.TemporaryDirectory(prefix="cri-") as sockets:
                socket = Path(sockets) / "cri.sock"
                made = ProcessNode(api, world, proxy, folder, f"unix://{socket}")
                async with served(made.runtime, socket):
                    yield made
