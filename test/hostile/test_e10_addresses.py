"""E10: for a pod in the host's network the daemon dials addresses of its own node only, whatever a NodePodProbe says."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest
from support.embedded_cluster import EmbeddedCluster
from support.fake_runtime import ScriptedRuntime
from support.hollow import node_name
from support.patience import PATIENCE_SECONDS
from support.target import node_pod_probe_path

from kruise_probe.daemon.targets import read_addresses

Json = dict[str, Any]

NODE = node_name(0)
LISTENING = ("127.0.0.1", "127.0.0.98", "127.0.0.99", "::1")
RULE = "a pod in the host's network is probed at an address of its own node only"
EXEC = {"exec": {"command": ["true"]}}
UNKNOWN_SECONDS = 30.0 + 2 * PATIENCE_SECONDS
"""A probe that cannot run becomes Unknown after 30 s; its daemon starts before that."""


class Case(NamedTuple):
    """What a NodePodProbe says of a pod for which the runtime reports no address, and the daemon's message."""

    ip: str
    message: str
    host_network: bool = True


REFUSED = {
    "loopback": Case("127.0.0.99", f"127.0.0.99 is a loopback address; {RULE}"),
    "loopback-v6": Case("::1", f"::1 is a loopback address; {RULE}"),
    "unspecified": Case("0.0.0.0", f"0.0.0.0 is an unspecified address; {RULE}"),
    "unspecified-v6": Case("::", f":: is an unspecified address; {RULE}"),
    "v4-in-v6": Case("::ffff:127.0.0.98", "::ffff:127.0.0.98 is not an address of this node"),
    "own-network": Case("127.0.0.99", "the runtime reports no address", host_network=False),
}


@asynccontextmanager
async def listeners(*hosts: str) -> AsyncIterator[tuple[int, list[str]]]:
    """One port at all of `hosts`, and which of them were connected to."""
    reached: list[str] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer.get_extra_info("sockname")[0])
        writer.close()

    async with AsyncExitStack() as stack:
        port = 0
        for host in hosts:
            server = await asyncio.start_server(take, host, port)
            await stack.enter_async_context(server)
            port = server.sockets[0].getsockname()[1]
        yield port, reached


def to_port(port: int) -> list[Json]:
    return [
        {"tcpSocket": {"port": port}},
        {"httpGet": {"port": port, "path": "/", "scheme": "HTTP"}},
        {"httpGet": {"port": port, "path": "/", "scheme": "HTTPS"}},
        {"grpc": {"port": port}},
    ]


@asynccontextmanager
async def daemon(
    cluster: EmbeddedCluster, pods: dict[str, Case], how: list[Json]
) -> AsyncIterator[None]:
    """A daemon whose NodePodProbe asks for all of `how` of every pod."""
    runtime = ScriptedRuntime()
    probes = [
        {"name": f"m#p{number}", "containerName": "main", "probe": {**each, "timeoutSeconds": 2}}
        for number, each in enumerate(how)
    ]
    entries = []
    for uid, case in pods.items():
        runtime.start(uid, "main", ip="", host_network=case.host_network)
        known = {"name": uid, "namespace": "default", "uid": uid, "IP": case.ip}
        entries.append({**known, "probes": probes})
    await cluster.hollow.add_node_pod_probe(NODE, probes)
    await cluster.api.merge(node_pod_probe_path(NODE), {"spec": {"podProbes": entries}})
    async with cluster.daemon(NODE, runtime):
        yield


async def results(cluster: EmbeddedCluster, count: int) -> dict[str, list[Json]]:
    """The results by pod, once all probes of all pods have one."""

    def states(report: Json | None) -> dict[str, list[Json]]:
        found = ((report or {}).get("status") or {}).get("podProbeStatuses") or ()
        return {one["uid"]: one["probeStates"] for one in found}

    reports = cluster.api.node_pod_probes
    await reports.wait(
        "every probe has a result",
        lambda: sum(map(len, states(reports.newest(NODE)).values())) == count,
        seconds=UNKNOWN_SECONDS,
    )
    return states(reports.newest(NODE))


async def test_an_address_that_is_not_the_nodes_is_never_dialled(cluster: EmbeddedCluster) -> None:
    async with listeners(*LISTENING) as (port, reached):
        how = to_port(port)
        async with daemon(cluster, REFUSED, how):
            found = await results(cluster, len(REFUSED) * len(how))
    assert reached == []
    for uid, case in REFUSED.items():
        assert {each["state"] for each in found[uid]} == {"Unknown"}, uid
        for each in found[uid]:
            assert each["message"].startswith(f"AddressNotAllowed: {case.message}"), each


async def test_a_command_runs_whatever_the_address_is(cluster: EmbeddedCluster) -> None:
    async with daemon(cluster, REFUSED, [EXEC]):
        found = await results(cluster, len(REFUSED))
    assert {each["state"] for states in found.values() for each in states} == {"Succeeded"}


async def test_an_address_of_the_node_is_dialled(cluster: EmbeddedCluster) -> None:
    all_own = sorted(map(str, read_addresses()))
    usable = [each for each in all_own if not each.startswith(("127.", "::1", "fe80:", "169.254."))]
    if not usable:
        pytest.skip("this machine has no address but loopback and link-local ones")
    async with listeners(usable[0]) as (port, reached):
        pods = {"uid-1": Case(usable[0], "")}
        async with daemon(cluster, pods, [{"tcpSocket": {"port": port}}]):
            found = await results(cluster, 1)
    assert found["uid-1"][0]["state"] == "Succeeded", found
    assert set(reached) == {usable[0]}


def test_the_cases_have_listeners_that_can_be_reached() -> None:
    """Otherwise they would pass without a rule."""
    for host in LISTENING:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as server:
            socket.create_connection(server.getsockname()[:2]).close()
