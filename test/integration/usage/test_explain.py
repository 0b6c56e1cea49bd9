"""`explain` names the broken link and its remedy, with the real manager and daemon."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from support.playground import ControlledPlayground
from support.target import marker_path, node_pod_probe_path
from support.usage_namespace import UsageNamespace

from kruise_probe.api.names import SYSTEM_NAMESPACE

Json = dict[str, Any]


def probe(name: str = "checked", **handler: Json) -> Json:
    return {
        "name": name,
        "containerName": "main",
        "probe": handler or {"exec": {"command": ["sh", "-c", "test ! -e bad"]}},
        "podConditionType": f"example.com/{name}",
    }


async def test_stale_daemon_is_named(ns: UsageNamespace, playground: ControlledPlayground) -> None:
    await ns.pod(nodeName="node-1")
    await ns.marker(probe())
    await ns.explained("web", "")
    await playground.kill_daemon("node-1")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/kruise-probe-node-1"
    try:
        past = {"renewTime": "2020-01-01T00:00:00.000000Z"}
        await playground.api.merge(path, {"spec": past})
        status = (await playground.api.get(node_pod_probe_path("node-1")))["status"]
        for entry in status["podProbeStatuses"]:
            for state in entry["probeStates"]:
                state["lastProbeTime"] = "2020-01-01T00:00:00Z"
        await playground.api.merge(f"{node_pod_probe_path('node-1')}/status", {"status": status})

        trace = await ns.explained("web", "ProbeDaemonStale")

        assert trace.first_broken == "daemon"
        assert "has not renewed its Lease since 2020" in trace.links[-1].text
    finally:
        playground.start_daemon("node-1")


async def test_writes_that_a_stopped_manager_did_not_make_are_named(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    await ns.pod()
    await ns.marker(probe())
    await ns.explained("web", "")
    await playground.kill_manager()
    try:
        (ns.folder("web") / "bad").touch()
        await ns.marker(probe("later"), name="later")

        behind = await ns.explained("web", "ConditionBehind")
        later = await ns.explained("web", "EntryMissing", probe="later")

        assert behind.first_broken == "condition"
        assert "the result is Failed" in behind.links[-1].text
        assert later.first_broken == "NodePodProbe"
        assert "no manager has written this marker's status" in later.links[-1].text
        assert "check that the manager runs" in later.links[-1].remedy

        await playground.api.delete(marker_path("marker", ns.namespace))
        assert (await ns.explained("web", "MarkerDeleting")).first_broken == "marker"
    finally:
        playground.start_manager()


LISTEN = (
    "import socket, sys, time; s = socket.create_server(('0.0.0.0', int(sys.argv[1])));"
    " time.sleep(1000)"
)


async def test_a_pod_that_serves_a_port_for_all_has_an_event(
    ns: UsageNamespace, free_port: int
) -> None:
    await ns.marker(probe(tcpSocket={"port": free_port}))
    await ns.pod()
    await ns.pod("all", command=["python3", "-c", LISTEN, str(free_port)])

    def warned() -> bool:
        return any(
            (each["reason"], each["involvedObject"]["name"]) == ("PortShared", "all")
            for each in ns.api.events.all()
            if each["metadata"]["namespace"] == ns.namespace
        )

    await ns.api.events.wait("the pod has the event", warned)


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is free on all addresses. Until the end, nobody gets it who does not ask for it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("0.0.0.0", 0))
        yield int(held.getsockname()[1])
