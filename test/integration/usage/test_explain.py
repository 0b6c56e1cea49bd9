"""`explain` names the broken link and its remedy, with the real manager and daemon."""

import socket
from collections.abc import Iterator

import pytest
from support.playground import ControlledPlayground
from support.programs import until
from support.target import marker_path, node_pod_probe_path
from support.usage_namespace import UsageNamespace

from kruise_probe.api.names import SYSTEM_NAMESPACE


def pod(name: str = "web") -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  nodeName: node-0
  containers:
  - name: main
    image: none
    command: [sleep, "1000"]
"""


def marker(
    probe: str = "exec: {command: ['true']}",
    *,
    name: str = "marker",
    result: str = "podConditionType: example.com/checked",
) -> str:
    return f"""
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  probes:
  - {{name: checked, containerName: main, probe: {{{probe}}}, {result}}}
"""


PAST = "2020-01-01T00:00:00.000000Z"


async def test_stale_daemon_is_named(ns: UsageNamespace, playground: ControlledPlayground) -> None:
    await ns.apply(pod().replace("node-0", "node-1"))
    await ns.apply(marker())
    await ns.explained("web", "")
    await playground.kill_daemon("node-1")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/kruise-probe-node-1"
    try:
        past = {"renewTime": PAST}
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
    await ns.apply(pod())
    command = "exec: {command: [sh, -c, 'test ! -e bad']}"
    await ns.apply(marker(command))
    await ns.explained("web", "")
    await playground.kill_manager()
    try:
        (ns.folder("web") / "bad").touch()
        await ns.apply(marker(name="later", result="podConditionType: example.com/later")
                         .replace("checked,", "later,"))  # fmt: skip

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
    "import socket, sys, time; s = socket.create_server((sys.argv[1], int(sys.argv[2])));"
    " time.sleep(1000)"
)


def listening(name: str, address: str, port: int) -> str:
    command = ["python3", "-c", LISTEN, address, str(port)]
    return pod(name).replace('[sleep, "1000"]', str(command))


async def test_a_pod_that_serves_a_port_for_all_has_an_event(
    ns: UsageNamespace, free_port: int
) -> None:
    await ns.apply("---".join([marker(f"tcpSocket: {{port: {free_port}}}"), pod()]))
    await ns.apply(listening("all", "0.0.0.0", free_port))

    async def warned() -> bool:
        events = await ns.playground.api.get(f"/api/v1/namespaces/{ns.namespace}/events")
        return any(
            (each["reason"], each["involvedObject"]["name"]) == ("PortShared", "all")
            for each in events["items"]
        )

    await until("the pod has the event", warned)


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that is free on all addresses. Until the end, nobody gets it who does not ask for it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("0.0.0.0", 0))
        yield int(held.getsockname()[1])
