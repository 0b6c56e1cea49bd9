"""A daemon of its own process between a scripted runtime and an embedded API server, seen from both sides."""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.fake_runtime import ExecCall, Script, ScriptedRuntime, hang, served, succeed
from support.programs import Program
from support.proxy import FaultyProxy, faulty_proxy
from support.saying import say
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
CAP = 16
SETTLED_SECONDS = 3.0


class ScriptedNode:
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

    def statuses(self, *, since: float) -> int:
        return self.proxy.writes(since=since)["patch nodepodprobes/status"]

    def events(self, *, since: float) -> int:
        return sum(n for key, n in self.proxy.writes(since=since).items() if key.endswith("events"))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ScriptedNode]:
    async with _node(tmp_path) as made:
        yield made


@asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[ScriptedNode]:
    async with EmbeddedApiServer(crds=all_crds(), tokens=NO_TOKENS) as server:
        config = ClusterConfig.plain(server.url)
        client = RestClient(config=config, field_manager="soak", user_agent="soak")
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
                made = ScriptedNode(api, world, proxy, folder, f"unix://{socket}")
                async with served(made.runtime, socket):
                    yield made


async def begun(node: ScriptedNode, daemon: Program, name: str, times: int) -> float:
    """When the command began for that many times in all."""

    async def so_often() -> bool:
        return len(node.began.get(name, ())) >= times

    await daemon.until(f"{name} runs for the {times}. time", so_often)
    return node.began[name][times - 1]


async def test_thirty_probes_are_spread_do_not_drift_and_cost_one_list_a_second(
    node: ScriptedNode, short: bool
) -> None:
    seconds = 5.0 if short else 60.0
    node.crowd(30, succeed())
    async with node.running():
        began = await node.ask()
        await node.all_are("Succeeded", 30)
        await asyncio.sleep(SETTLED_SECONDS)
        node.began.clear()
        calls, execs = node.runtime.calls.copy(), len(node.runtime.execs)
        counted_at = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        seconds = asyncio.get_running_loop().time() - counted_at
        calls = node.runtime.calls - calls
        execs = len(node.runtime.execs) - execs
    phases = sorted(each[0] % 1.0 for each in node.began.values())
    gaps = [b - a for a, b in pairwise([*phases, phases[0] + 1.0])]
    drifts = [abs((at - each[0]) % 1.0) for each in node.began.values() for at in each]
    drift = max(min(each, 1.0 - each) for each in drifts)
    others = {name: n for name, n in calls.items() if name != "ExecSync"}
    say(
        f"30 probes a second for {seconds:g} s: {execs} execs beside {others}; widest gap between phases "
        f"{max(gaps) * 1000:.0f} ms; drift {drift * 1000:.0f} ms at most; "
        f"{node.statuses(since=began)} statuses since the start"
    )
    assert set(others) <= {"ListContainers"}
    assert others.get("ListContainers", 0) <= seconds + 1
    assert execs >= (15 if short else 29) * seconds
    assert short or max(gaps) < 0.5
    assert short or drift <= 0.05


async def test_no_more_execs_run_at_once_than_the_cap_and_its_places_are_used(
    node: ScriptedNode, short: bool
) -> None:
    seconds = 3.0 if short else 20.0
    node.crowd(100, succeed(after_seconds=0.3))
    async with node.running(max_concurrent_execs=str(CAP)):
        await node.ask()
        await node.all_are("Succeeded", 100)
        before = len(node.runtime.execs)
        await asyncio.sleep(seconds)
        rate = (len(node.runtime.execs) - before) / seconds
    most = node.runtime.most_in_flight
    say(
        f"100 execs of 0.3 s wanted a second: {most} at once, {rate:.1f}/s of {CAP / 0.3:.1f}/s that have room"
    )
    assert most <= CAP
    assert short or rate >= 0.9 * CAP / 0.3


async def test_an_exec_that_hangs_fails_in_time_and_never_doubles(
    node: ScriptedNode, short: bool
) -> None:
    node.container("stuck", hang())
    node.wish("stuck", periodSeconds=1, timeoutSeconds=1)
    async with node.running() as daemon:
        await node.ask()
        began = await begun(node, daemon, "stuck", 1)
        await node.all_are("Failed", 1)
        took = asyncio.get_running_loop().time() - began
        await begun(node, daemon, "stuck", 2 if short else 4)
    pauses = ", ".join(f"{b - a:.1f}" for a, b in pairwise(node.began["stuck"]))
    say(
        f"an exec that hangs, timeout 1 s: Failed after {took:.2f} s; next tries after {pauses} s; "
        f"{node.runtime.most_in_flight} at once"
    )
    assert node.runtime.most_in_flight == 1
    assert short or took <= 2.0


async def test_fifty_steady_probes_do_not_notice_that_the_daemon_was_killed(
    node: ScriptedNode,
) -> None:
    node.crowd(50, succeed(b"fine"))
    async with node.running() as daemon:
        await node.ask()
        await node.all_are("Succeeded", 50)
        await asyncio.sleep(SETTLED_SECONDS)
        await daemon.kill()
    known = len(node.world.reports.history[next(iter(node.world.reports.history))])
    since = asyncio.get_running_loop().time()
    node.began.clear()
    async with node.running() as daemon:
        for number in range(50):
            await begun(node, daemon, f"p{number}", 2)
        await asyncio.sleep(SETTLED_SECONDS)
    statuses, events = node.statuses(since=since), node.events(since=since)
    later = node.world.reports.history[next(iter(node.world.reports.history))][known:]
    unsteady = [
        each["state"]
        for report in later
        for entry in report.get("status", {}).get("podProbeStatuses") or ()
        for each in entry["probeStates"]
        if each["state"] != "Succeeded"
    ]
    say(
        f"killed and started under 50 steady probes: {len(unsteady)} other states, {statuses} statuses, {events} events"
    )
    assert not unsteady
    assert statuses <= 1
    assert events == 0


async def test_new_entries_and_edits_take_effect_at_once(node: ScriptedNode, short: bool) -> None:
    taken: dict[str, float] = {}
    async with node.running() as daemon:
        await daemon.ready()
        node.container("old", succeed())
        node.wish("old", periodSeconds=30)
        asked = await node.ask()
        taken["new entry -> first exec"] = await begun(node, daemon, "old", 1) - asked
        node.wish("old", periodSeconds=1)
        asked = await node.ask()
        taken["period edited from 30 to 1 s -> next exec"] = (
            await begun(node, daemon, "old", 2) - asked
        )
        asked = asyncio.get_running_loop().time()
        node.container("new", succeed(), new=True)
        node.wish("new", periodSeconds=30, initialDelaySeconds=2)
        await node.ask()
        late = await begun(node, daemon, "new", 1) - asked - 2.0
        taken["new container, after its initial delay of 2 s"] = late
    say("; ".join(f"{what}: {seconds * 1000:.0f} ms" for what, seconds in taken.items()))
    assert late >= -0.01
    if not short:
        assert taken["new entry -> first exec"] <= 0.05
        assert taken["period edited from 30 to 1 s -> next exec"] <= 1.1
        assert late <= 0.05


async def test_messages_that_change_each_second_are_written_together(
    node: ScriptedNode, short: bool
) -> None:
    seconds = 6.0 if short else 60.0
    numbers = itertools.count()

    async def talkative(_: ExecCall) -> ExecResult:
        return ExecResult(0, f"number {next(numbers)}".encode(), b"")

    node.crowd(30, talkative)
    async with node.running():
        await node.ask()
        await node.all_are("Succeeded", 30)
        await asyncio.sleep(SETTLED_SECONDS)
        since = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
        statuses, events = node.statuses(since=since), node.events(since=since)
    conflicts = node.proxy.count(lambda seen: seen.code == 409 and not seen.about_leases)
    say(
        f"30 probes with new messages each second, {seconds:g} s: {statuses} statuses, {events} events, "
        f"{dict(conflicts) or 'no'} conflicts"
    )
    assert 1 <= statuses <= seconds / 2 + 1
    assert events == 0
    assert not conflicts


async def test_another_host_is_refused_and_never_dialled(node: ScriptedNode) -> None:
    dialled: list[object] = []

    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(writer.get_extra_info("peername"))
        writer.close()

    async with await asyncio.start_server(noted, "127.0.0.77", 0) as server:
        port = server.sockets[0].getsockname()[1]
        handlers = {
            "tcp": {"tcpSocket": {"host": "127.0.0.77", "port": port}},
            "http": {"httpGet": {"host": "127.0.0.77", "port": port, "path": "/"}},
        }
        for name, handler in handlers.items():
            node.container(name, succeed())
            node.wish(name, handler, periodSeconds=1)
        async with node.running():
            await node.ask()
            await node.all_are("Failed", 2)
            await asyncio.sleep(SETTLED_SECONDS)
        messages = {message for _, message in node.states().values()}
    say(f"another host: {len(dialled)} connections; {'; '.join(sorted(messages))}")
    assert not dialled
