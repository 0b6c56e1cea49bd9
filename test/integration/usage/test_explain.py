"""`explain` names the broken link and its remedy, with the real manager and daemon."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.playground import ControlledPlayground
from support.programs import until
from support.shell import run
from support.target import marker_path, node_pod_probe_path, pod_path
from support.usage_namespace import UsageNamespace

from kruise_probe.api.names import LEADER_ELECTION_ID, SYSTEM_NAMESPACE

Json = dict[str, Any]


def pod(spec: str = "", *, labels: str = "{app: web}", name: str = "web") -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {labels}}}
spec:
  nodeName: node-0
  containers:
  - name: main
    image: none
    command: [sleep, "1000"]
    ports: [{{name: game, containerPort: 7000}}]
{spec}
"""


def marker(
    probe: str = "exec: {command: ['true']}",
    *,
    name: str = "marker",
    container: str = "main",
    result: str = "podConditionType: example.com/checked",
    selector: str = "{matchLabels: {app: web}}",
) -> str:
    return f"""
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {{name: {name}}}
spec:
  selector: {selector}
  probes:
  - {{name: checked, containerName: {container}, probe: {{{probe}}}, {result}}}
"""


INIT = "  initContainers: [{name: init, image: none, command: [sleep, '1000']}]"
NEVER_STARTED = (
    "    startupProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1000}"
)
PAST = "2020-01-01T00:00:00.000000Z"
ENDED = "  restartPolicy: Never"


@pytest.mark.parametrize(
    ("documents", "link", "reason", "text", "remedy"),
    [
        pytest.param(
            [pod(INIT), marker(container="init")],
            "pod", "PodNotInitialized", "init containers", "init containers",
            id="init-containers-running",
        ),
        pytest.param(
            [pod(NEVER_STARTED), marker()],
            "container", "ContainerNotStarted", "startupProbe", "startupProbe",
            id="startup-probe",
        ),
        pytest.param(
            [pod(ENDED).replace("sleep, \"1000\"", "'true'"), marker()],
            "pod", "PodFinished", "Succeeded", "not probed",
            id="pod-completed",
        ),
        pytest.param(
            [pod().replace("node-0", "node-nowhere"), marker()],
            "pod", "NodeNotFound", "Node node-nowhere does not exist", "its node was deleted",
            id="node-deleted",
        ),
    ],
)  # fmt: skip
async def test_the_first_broken_link_is_named(
    ns: UsageNamespace, documents: list[str], link: str, reason: str, text: str, remedy: str
) -> None:
    for each in documents:
        await ns.apply(each)

    trace = await ns.explained("web", reason)

    assert (trace.first_broken, trace.links[-1].name) == (link, link)
    assert text in trace.links[-1].text
    assert remedy in trace.links[-1].remedy
    assert all(each.state == "ok" for each in trace.links[:-1])


async def test_node_without_a_daemon_is_named(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    name = f"{ns.namespace}-node"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    await playground.api.create("/api/v1/nodes", node)
    await ns.apply(pod().replace("node-0", name))
    await ns.apply(marker())
    await playground.api.merge(
        pod_path("web", ns.namespace, "status"),
        {"status": {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}]}},
    )

    trace = await ns.explained("web", "NoDaemon")

    assert trace.first_broken == "daemon"
    assert name in trace.links[-1].text
    assert "DaemonSet" in trace.links[-1].remedy


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


async def test_absent_leader_is_named_if_a_write_is_missing(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    await ns.apply(pod())
    await ns.apply(marker("exec: {command: [sh, -c, 'test ! -e bad']}"))
    await ns.explained("web", "")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEADER_ELECTION_ID},
        "spec": {"holderIdentity": "manager-1", "leaseDurationSeconds": 15, "renewTime": PAST},
    }
    await playground.kill_manager()
    try:
        await playground.api.create(leases, lease)
        (ns.folder("web") / "bad").touch()

        trace = await ns.explained("web", "ManagerNotRunning")

        assert [each.name for each in trace.links] == ["marker", "pod", "container", "manager"]
        assert f"no manager has renewed its Lease since {PAST}" in trace.links[-1].text
        assert "but the result is Failed" in trace.links[-1].text
    finally:
        await playground.api.delete(f"{leases}/{LEADER_ELECTION_ID}")
        playground.start_manager()


async def test_matching_marker_of_another_namespace_is_named(
    ns: UsageNamespace, playground: ControlledPlayground, tmp_path: Path
) -> None:
    await ns.apply(pod(labels=f"{{app: {ns.namespace}}}"))
    selector = f"{{matchLabels: {{app: {ns.namespace}}}}}"
    await ns.apply(marker(name=ns.namespace, selector=selector), namespace="default")

    ran = await run(
        f"kruise-probe explain -n {ns.namespace} web",
        kubeconfig=playground.kubeconfig,
        folder=tmp_path,
    )

    assert (ran.code, ran.err) == (0, "")
    assert "no PodProbeMarker selects this pod" in ran.out
    assert f"PodProbeMarker default/{ns.namespace} has a selector for its labels, but" in ran.out
    assert f"-> create it in namespace {ns.namespace}" in ran.out
    await playground.api.delete(marker_path(ns.namespace, "default"))


async def test_terminating_pod_is_named(
    ns: UsageNamespace, playground: ControlledPlayground
) -> None:
    await ns.apply(
        pod("  terminationGracePeriodSeconds: 600").replace(
            "sleep, ", "sh, -c, trap '' TERM; sleep "
        )
    )
    await ns.apply(marker())
    await ns.explained("web", "")
    await playground.api.delete(pod_path("web", ns.namespace))
    trace = await ns.explained("web", "PodTerminating")
    assert trace.first_broken == "pod"
    assert "replacement" in trace.links[-1].remedy


LISTEN = (
    "import socket, sys, time; s = socket.create_server((sys.argv[1], int(sys.argv[2])));"
    " time.sleep(1000)"
)


def listening(name: str, address: str, port: int) -> str:
    command = ["python3", "-c", LISTEN, address, str(port)]
    return pod(name=name).replace('[sleep, "1000"]', str(command))


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
