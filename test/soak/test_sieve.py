"""Sieve's three plans on two real API servers of one etcd, with managers as processes; see support/simulation/sieve.py.

Intermediate state: a manager is killed after a write whose answer it never gets, and the next one uses the other API server.
Unobserved state: watches are held until an object is created and deleted. Stale state: a manager restarts while the API
server that it reads from gets nothing from etcd, and its writes go to the other one, as behind a load balancer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import programs
from support.background import background
from support.connections import listening
from support.control_plane import (
    ControlPlane,
    RealNamespace,
    second_api_server,
    staged,
    until_served,
)
from support.hollow import LABEL, pod_name, probe
from support.output import print_line
from support.programs import ALONE
from support.proxy import FaultyProxy, SeenRequest, faulty_proxy
from support.raw_api import RawApi
from support.watched import labels

from kruise_probe.client.config import ClusterConfig, load_config
from kruise_probe.client.rest import RestClient

Json = dict[str, Any]

NAMESPACE = "sieve"
PODS = 2
START_SECONDS = 300.0
"""Limit for the start of an API server."""
LOOK_SECONDS = 6.0
"""Time for a manager to become ready and to write if it took stale lists; initial keys are spread over 4 s."""


class Etcd:
    """The way from the second API server to etcd; while it is frozen, nothing arrives in either direction."""

    def __init__(self) -> None:
        self._moving = asyncio.Event()
        self.thaw()

    def freeze(self) -> None:
        self._moving.clear()

    def thaw(self) -> None:
        self._moving.set()

    @asynccontextmanager
    async def relayed(self, port: int) -> AsyncIterator[int]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pump(reader, other_writer))
                        group.create_task(self._pump(other_reader, writer))
                finally:
                    other_writer.transport.abort()
                    writer.transport.abort()

        async with listening(serve) as free:
            yield free

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._moving.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class Stage(NamedTuple):
    """Hollow nodes and pods, and two API servers; the daemons of all nodes report successes."""

    real: RealNamespace
    second: ClusterConfig
    second_api: RawApi
    etcd: Etcd
    folder: Path

    def differs(self, *markers: str) -> Json:
        """What is not as in a cluster with these markers, each of which has a condition of its own name."""
        watched = self.real.watched
        reports = watched.node_pod_probes.all()
        entries = [each for report in reports for each in report["spec"].get("podProbes") or ()]
        mine = {each["metadata"]["name"]: each for each in watched.markers.all()}
        pods = [
            watched.pods.newest(pod_name(n), NAMESPACE) or {"metadata": {}} for n in range(PODS)
        ]
        found = {
            "entries": sorted((e["name"], p["name"]) for e in entries for p in e["probes"]),
            "labels": [labels(each).get(LABEL) for each in pods],
            "conditions": [
                sorted(
                    (each["type"], each["status"])
                    for each in pod.get("status", {}).get("conditions") or ()
                    if each["type"].startswith("example.com/")
                )
                for pod in pods
            ],
            "markers": {name: _counts(each) for name, each in mine.items()},
        }
        wanted = {
            "entries": sorted(
                (pod_name(n), f"{each.partition('-')[0]}#{each}")
                for n in range(PODS)
                for each in markers
            ),
            "labels": ["good" if markers else None] * PODS,
            "conditions": [[(f"example.com/{each}", "True") for each in sorted(markers)]] * PODS,
            "markers": {each.partition("-")[0]: (True, PODS, PODS, 0) for each in markers},
        }
        return {key: {"is": found[key], "should be": wanted[key]} for key in wanted
                if found[key] != wanted[key]}  # fmt: skip

    async def until_has(self, *markers: str) -> None:
        await self.real.watched.wait_while(f"the end has {markers}", lambda: self.differs(*markers))

    async def put(self, name: str) -> None:
        """Creates the marker `way` of `way-1`, or changes it."""
        how, marker = named(name), name.partition("-")[0]
        if self.real.watched.markers.newest(marker, NAMESPACE):
            await self.real.hollow.edit_marker(how, name=marker)
        else:
            await self.real.hollow.add_marker(how, name=marker)

    @asynccontextmanager
    async def manager(self, proxy: FaultyProxy) -> AsyncIterator[programs.Program]:
        kubeconfig = proxy.write_kubeconfig(self.folder, proxy.url.rpartition(":")[2])
        async with programs.running("manager", kubeconfig, self.folder, ALONE) as program:
            yield program


def named(name: str) -> Json:
    return probe(name, podConditionType=f"example.com/{name}")


def _counts(marker: Json) -> tuple[object, ...]:
    status = marker.get("status", {})
    current = status.get("observedGeneration") == marker["metadata"]["generation"]
    return (current, *(status.get(key) for key in ("matchedPods", "succeeded", "nodesBehind")))


@asynccontextmanager
async def two_servers(plane: ControlPlane, folder: Path) -> AsyncIterator[Stage]:
    etcd, port = Etcd(), int(plane.etcd.rpartition(":")[2])
    async with staged(plane, NAMESPACE) as real, etcd.relayed(port) as relayed:
        replaced = {"--etcd-servers": ("--etcd-servers", f"http://127.0.0.1:{relayed}")}
        with second_api_server(plane, folder, port + 9, replaced) as kubeconfig:
            second = load_config(str(kubeconfig))
            async with RestClient(config=second, field_manager="soak", user_agent="soak") as client:
                api = RawApi(client)
                await until_served(api, READ_PATHS[0], seconds=START_SECONDS)
                await real.hollow.add_nodes(1)
                await real.hollow.add_pods(PODS, nodes=1)
                async with background(real.daemons.follow()):
                    yield Stage(real, second, api, etcd, folder)


async def history_with_a_kill(stage: Stage, number: int) -> int:
    """One history; the manager is killed after its `number`-th write. Returns the number of writes until then."""
    made = 0

    def is_chosen(seen: SeenRequest) -> bool:
        nonlocal made
        made += seen.writes
        return seen.writes and made == number

    async with (
        faulty_proxy(stage.real.upstream) as one,
        faulty_proxy(stage.second) as two,
        stage.manager(one) as first,
        AsyncExitStack() as stack,
    ):
        one.lost_answers = is_chosen

        async def succeed() -> None:
            await one.until("the write is made", lambda: made >= number, seconds=86_400)
            await first.kill()
            await stack.enter_async_context(stage.manager(two))

        async with background(succeed()):
            await stage.put("way-1")
            await stage.until_has("way-1")
            await stage.put("gateway-1")
            await stage.until_has("way-1", "gateway-1")
            await stage.put("way-2")
            await stage.until_has("way-2", "gateway-1")
            await stage.real.hollow.remove_marker("way")
            await stage.until_has("gateway-1")
            await stage.real.hollow.remove_marker("gateway")
            await stage.until_has()
    return made


async def test_a_kill_after_any_write_ends_as_without_it(
    control_plane: ControlPlane, short: bool, tmp_path: Path
) -> None:
    """The short form has every eighth write."""
    async with two_servers(control_plane, tmp_path) as stage:
        number, step = (4, 8) if short else (1, 1)
        while await history_with_a_kill(stage, number) >= number:
            number += step
        print_line(f"killed after writes up to {number - step}")
        assert number > 12


@pytest.mark.parametrize("lists", [False, True], ids=["held", "listed again"])
async def test_a_marker_that_nobody_observed_leaves_nothing(
    control_plane: ControlPlane, tmp_path: Path, lists: bool
) -> None:
    expired = set[str]()

    def is_expired(seen: SeenRequest) -> bool:
        """The next watch of each resource."""
        if not seen.watch or seen.initial_events or seen.resource in expired:
            return False
        expired.add(seen.resource)
        return True

    async with (
        two_servers(control_plane, tmp_path) as stage,
        faulty_proxy(stage.second) as proxy,
        stage.manager(proxy),
    ):
        hollow, markers = stage.real.hollow, stage.real.watched.markers
        await stage.put("way-1")
        await stage.until_has("way-1")
        proxy.pause()
        await stage.put("gateway-1")
        await markers.until("is created", bool, name="gateway", namespace=NAMESPACE)
        await hollow.remove_marker("gateway")
        await markers.until_gone("gateway", NAMESPACE)
        await stage.put("way-2")
        if lists:
            proxy.fail(410, reason="Expired", when=is_expired)
            proxy.reset()
        proxy.resume()
        await stage.until_has("way-2")
        if lists:
            assert "podprobemarkers" in expired
            assert not any(_gateways(each) for each in _specs(stage))
        await stage.put("way-3")
        await stage.until_has("way-3")


async def test_a_restart_against_a_stale_server_writes_nothing_stale(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        two_servers(control_plane, tmp_path) as stage,
        faulty_proxy(stage.real.upstream) as fresh,
        faulty_proxy(stage.second) as stale,
    ):
        stale.writes_to = stage.real.upstream.server
        async with stage.manager(fresh):
            await stage.put("way-1")
            await stage.put("gateway-1")
            await stage.until_has("way-1", "gateway-1")
            for path in READ_PATHS:
                await until_served(stage.second_api, path)
            stage.etcd.freeze()
            await stage.put("way-2")
            await stage.real.hollow.remove_marker("gateway")
            await stage.until_has("way-2")
        before = len(_specs(stage))
        cached = await stage.second_api.get(f"{READ_PATHS[0]}?resourceVersion=0")
        assert {each["metadata"]["name"] for each in cached["items"]} == {"way", "gateway"}

        async with stage.manager(stale) as manager:
            await stale.until("it reads", lambda: any("pods" in each.path for each in stale.log))

            async def wrote_or_is_ready() -> bool:
                return bool(stale.writes()) or (await manager.get("readyz"))[0] == 200

            with pytest.raises(AssertionError, match="not within"):
                await programs.until("it works", wrote_or_is_ready, seconds=LOOK_SECONDS)
            stage.etcd.thaw()
            await manager.ready()
            await stage.put("way-3")
            await stage.until_has("way-3")
        assert not any(_gateways(each) for each in _specs(stage)[before:])


READ_PATHS = (
    f"/apis/apps.kruise.io/v1alpha1/namespaces/{NAMESPACE}/podprobemarkers",
    "/apis/apps.kruise.io/v1alpha1/nodepodprobes",
    "/api/v1/pods",
    "/api/v1/nodes",
)


def _specs(stage: Stage) -> list[Json]:
    """Each version of the NodePodProbe."""
    history = stage.real.watched.node_pod_probes.history
    return [each["spec"] for versions in history.values() for each in versions]


def _gateways(spec: Json) -> list[str]:
    entries = spec.get("podProbes") or ()
    names = [each["name"] for entry in entries for each in entry["probes"]]
    return [each for each in names if each.startswith("gateway#")]
