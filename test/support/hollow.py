"""Hollow nodes and pods: objects without processes, and daemons that write results without probes.

They work on any API server. Pods have addresses of 127.0.0.0/8. A hollow daemon writes the whole status of its NodePodProbe, as
a real one does, but no Lease: `soak/stale.py` renews those.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.target import Target, marker_path, node_pod_probe_path, pod_path, results_of
from support.wire import Json, typed

from kruise_probe.api.errors import KubeError, NotFound
from kruise_probe.api.names import SYSTEM_NAMESPACE
from kruise_probe.api.times import format_time, utc_now
from kruise_probe.client.config import ClusterConfig

CONCURRENT_REQUESTS = 16
RETRY_SECONDS = 0.5
CONDITION = "example.com/healthy"
LABEL = "example.com/state"
ANNOTATION = "example.com/cost"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"

ResultOf = Callable[[str, str], tuple[str, str]]
"""State and message, by the names of pod and probe."""


def healthy(_pod: str, _probe: str) -> tuple[str, str]:
    return "Succeeded", "fine"


async def run_concurrently(work: Iterable[Awaitable[Any]]) -> None:
    """Awaits all of `work`, at most `CONCURRENT_REQUESTS` at once."""
    left = iter(work)

    async def worker() -> None:
        for request in left:
            await request

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT_REQUESTS):
            group.create_task(worker())


def node_name(number: int) -> str:
    return f"hollow-{number}"


def pod_name(number: int) -> str:
    return f"pod-{number}"


def pod_ip(number: int) -> str:
    return f"127.{20 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"


def probe(name: str = "healthy", **more: Any) -> Json:
    """An exec probe with a condition, and labels and annotations for both states; None removes a field."""
    fields = {
        "name": name,
        "containerName": "main",
        "probe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
        "podConditionType": CONDITION,
        "markerPolicy": [
            {"state": "Succeeded", "labels": {LABEL: "good"}, "annotations": {ANNOTATION: "-1"}},
            {"state": "Failed", "labels": {LABEL: "bad"}, "annotations": {ANNOTATION: "1"}},
        ],
        **more,
    }
    return {key: value for key, value in fields.items() if value is not None}


def marker_object(
    *probes: Json, name: str = "marker", app: str = "web", selector: Json | None = None
) -> Json:
    spec = {
        "selector": selector or {"matchLabels": {"app": app}},
        "probes": list(probes or [probe()]),
    }
    return typed("PodProbeMarker", metadata={"name": name}, spec=spec)


def node_pod_probe_object(node: str, entries: Sequence[Json] = ()) -> Json:
    return typed("NodePodProbe", metadata={"name": node}, spec={"podProbes": list(entries)})


def spec_entry(
    pod: str,
    uid: str,
    probes: Sequence[Json],
    *,
    namespace: str,
    ip: str = "",
) -> Json:
    """An entry of NodePodProbe.spec."""
    return {"name": pod, "namespace": namespace, "uid": uid, "IP": ip, "probes": list(probes)}


def probe_state(
    name: str,
    state: str,
    message: str,
    *,
    probed_at: str,
    moved_at: str,
) -> Json:
    """A result in NodePodProbe.status."""
    return {
        "name": name,
        "state": state,
        "message": message,
        "lastProbeTime": probed_at,
        "lastTransitionTime": moved_at,
    }


def pod_object(
    name: str,
    *,
    node: str,
    ip: str,
    at: str,
    labels: Json | None = None,
    padding_bytes: int = 0,
) -> Json:
    """A running pod with its status; `padding_bytes` in its environment make it as large as real ones."""
    container: Json = {"name": "main", "image": "none", "command": ["sleep"]}
    if padding_bytes:
        container["env"] = [{"name": "PADDING", "value": "x" * padding_bytes}]
    types = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    container_status = {
        "name": "main",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "none",
        "imageID": "",
        "containerID": "containerd://" + "0" * 64,
        "state": {"running": {"startedAt": at}},
    }
    return {
        "metadata": {"name": name, "labels": {"app": "web"} if labels is None else labels},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                {"type": type, "status": "True", "lastTransitionTime": at} for type in types
            ],
            "containerStatuses": [container_status],
        },
    }


class Hollow:
    """Creates, changes and deletes hollow objects; pods and markers in one namespace."""

    def __init__(self, api: Target, namespace: str = "default") -> None:
        self.api = api
        self.namespace = namespace

    async def add_nodes(self, count: int) -> None:
        await run_concurrently(self.add_node(node_name(number)) for number in range(count))

    async def add_node(self, name: str) -> None:
        # Kruise's manager ignores nodes that are not ready.
        ready = {"type": "Ready", "status": "True"}
        node = {
            "metadata": {"name": name},
            "spec": {"unschedulable": True},
            "status": {"conditions": [ready]},
        }
        await self.api.create("/api/v1/nodes", node)

    async def add_node_pod_probe(self, name: str, probes: Sequence[Json] = ()) -> None:
        """A node with a NodePodProbe that lists `probes` of one pod, uid-1; no manager runs."""
        await self.add_node(name)
        entries = (
            [
                spec_entry(
                    "pod",
                    "uid-1",
                    probes,
                    namespace="default",
                )
            ]
            if probes
            else ()
        )
        path = node_pod_probe_path("").rstrip("/")
        await self.api.create(path, node_pod_probe_object(name, entries))

    async def add_pods(
        self,
        count: int,
        *,
        nodes: int,
        first: int = 0,
        **more: Any,
    ) -> None:
        numbers = range(first, first + count)
        await run_concurrently(
            self.add_pod(number, node=node_name(number % nodes), **more) for number in numbers
        )

    async def add_pod(self, number: int, *, node: str, **more: Any) -> None:
        """`more` are arguments of `pod_object`."""
        at = format_time(utc_now())
        body = pod_object(
            pod_name(number),
            node=node,
            ip=pod_ip(number),
            at=at,
            **more,
        )
        status = body.pop("status")
        await self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", body)
        path = pod_path(pod_name(number), self.namespace, "status")
        await self.api.merge(f"{path}?fieldManager=kubelet", {"status": status})

    async def remove_pod(self, name: str) -> None:
        await self.api.delete(pod_path(name, self.namespace), grace_seconds=0)

    async def add_marker(self, *probes: Json, name: str = "marker", app: str = "web") -> Json:
        path = marker_path("", self.namespace).rstrip("/")
        return await self.api.create(path, marker_object(*probes, name=name, app=app))

    async def edit_marker(self, *probes: Json, name: str = "marker") -> Json:
        change = {"spec": {"probes": list(probes)}}
        return await self.api.merge(marker_path(name, self.namespace), change)

    async def remove_marker(self, name: str = "marker") -> None:
        await self.api.delete(marker_path(name, self.namespace))


class Daemons:
    """The daemons of all nodes, without probes: `result_of` returns each result.

    Attributes:
        seconds_behind: how far the clocks of the nodes are behind.
        writes: number of statuses written.
        refused: failed writes, as (node, error).
    """

    def __init__(self, api: Target, result_of: ResultOf = healthy) -> None:
        self.result_of = result_of
        self.seconds_behind = 0.0
        self.writes = 0
        self.refused: list[tuple[str, KubeError]] = []
        self._api = api
        self._moved: dict[tuple[str, str], tuple[str, str]] = {}

    def status_of(self, node_pod_probe: Json) -> Json:
        """The status that a daemon would write now for this NodePodProbe."""
        entries = node_pod_probe["spec"].get("podProbes", ())
        return {"podProbeStatuses": [self._of(entry) for entry in entries]}

    def _of(self, entry: Json) -> Json:
        now = format_time(utc_now() - timedelta(seconds=self.seconds_behind))
        states = []
        for probe in entry["probes"]:
            name = probe["name"]
            state, message = self.result_of(entry["name"], name)
            key = (entry["uid"], name)
            before, _ = self._moved.get(key, ("", ""))
            if before != state:
                self._moved[key] = (state, now)
            _, moved_at = self._moved[key]
            states.append(
                probe_state(
                    name,
                    state,
                    message,
                    probed_at=now,
                    moved_at=moved_at,
                )
            )
        names = {key: entry[key] for key in ("name", "namespace", "uid")}
        return {**names, "probeStates": states}

    async def write(self, node: str) -> None:
        """Writes the status of one node, if it has a NodePodProbe."""
        found = self._api.node_pod_probes.newest(node)
        if found is None:
            return
        status = self.status_of(found)
        try:
            await self._api.merge(f"{node_pod_probe_path(node)}/status", {"status": status})
            self.writes += 1
        except NotFound:
            return
        except KubeError as error:
            self.refused.append((node, error))

    def behind(self) -> list[str]:
        """The nodes whose NodePodProbe does not have the current results."""
        nodes = []
        for plan in self._api.node_pod_probes.all():
            current = {"status": self.status_of(plan)}
            if results_of(current) != results_of(plan):
                nodes.append(plan["metadata"]["name"])
        return nodes

    async def write_changes(self) -> None:
        """Writes the status of each node whose results have changed."""
        await run_concurrently(map(self.write, self.behind()))

    async def follow(self) -> None:
        """Writes new results whenever a spec changes, until cancelled."""
        while True:
            await self._api.node_pod_probes.wait("a result is new", self.behind, seconds=86_400)
            refused = len(self.refused)
            await self.write_changes()
            if len(self.refused) > refused:
                await asyncio.sleep(RETRY_SECONDS)

    async def write_without_end(self) -> None:
        """Each node writes all the time, as if its messages changed in every period."""
        while True:
            await self.write_all()

    async def write_all(self) -> None:
        """Each node writes once, also without new results."""
        nodes = [plan["metadata"]["name"] for plan in self._api.node_pod_probes.all()]
        if not nodes:
            await self._api.node_pod_probes.next_change()
        await run_concurrently(map(self.write, nodes))


@dataclass
class HollowCluster:
    """An API server with hollow objects: `api` reaches it directly, `upstream` is for a proxy or a process."""

    upstream: ClusterConfig
    api: Target
    hollow: Hollow
    daemons: Daemons
