"""Hollow nodes and pods, objects only, and daemons that know their results without asking anybody.

For any API server. Addresses of pods are of 127/8. A daemon here writes what a real one writes: the status of its
node's NodePodProbe, whole, and its Lease.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from support.world import World

from kruise_probe.api.errors import AlreadyExists, KubeError, NotFound
from kruise_probe.api.names import SYSTEM_NAMESPACE, agent_lease_name
from kruise_probe.api.times import format_time, utc_now
from kruise_probe.playground.raw_api import RawApi, marker_path, node_pod_probe_path, pod_path

Json = dict[str, Any]

SIDE_BY_SIDE = 16
RETRY_SECONDS = 0.5
CONDITION = "example.com/healthy"
LABEL = "example.com/state"
ANNOTATION = "example.com/cost"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"

Verdict = Callable[[str, str], tuple[str, str]]
"""Of a pod and a probe: state and message."""


def healthy(_pod: str, _probe: str) -> tuple[str, str]:
    return "Succeeded", "fine"


async def side_by_side(work: Iterable[Awaitable[Any]], limit: int = SIDE_BY_SIDE) -> None:
    """All of it, so many at once; each is made when its turn comes."""
    left = iter(work)

    async def work_off() -> None:
        for each in left:
            await each

    async with asyncio.TaskGroup() as group:
        for _ in range(limit):
            group.create_task(work_off())


def node_name(number: int) -> str:
    return f"hollow-{number}"


def pod_name(number: int) -> str:
    return f"pod-{number}"


def pod_ip(number: int) -> str:
    return f"127.{20 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"


def probe(name: str = "healthy", **more: Any) -> Json:
    """An exec probe with a condition and marks for both states."""
    return {
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


class Hollow:
    """A namespace full of it."""

    def __init__(self, api: RawApi, namespace: str = "default") -> None:
        self.api = api
        self.namespace = namespace

    async def add_nodes(self, count: int) -> None:
        await side_by_side(self.add_node(node_name(number)) for number in range(count))

    async def add_node(self, name: str) -> None:
        body = {"metadata": {"name": name}, "spec": {"unschedulable": True}}
        await self.api.create("/api/v1/nodes", body)

    async def ask_node(self, name: str, probes: list[Json]) -> None:
        """A node with a NodePodProbe: `probes` of one pod, uid-1, whose manager is away."""
        await self.add_node(name)
        entry = {"name": "pod", "namespace": "default", "uid": "uid-1", "IP": "", "probes": probes}
        body = {
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "NodePodProbe",
            "metadata": {"name": name},
            "spec": {"podProbes": [entry]},
        }
        await self.api.create(node_pod_probe_path("").rstrip("/"), body)

    async def add_pods(self, count: int, *, nodes: int, first: int = 0, **more: Any) -> None:
        numbers = range(first, first + count)
        await side_by_side(
            self.add_pod(number, node=node_name(number % nodes), **more) for number in numbers
        )

    async def add_pod(
        self, number: int, *, node: str, labels: Json | None = None, padding_bytes: int = 0
    ) -> None:
        """A running pod; `padding_bytes` in its environment makes it as large as real ones."""
        name = pod_name(number)
        container: Json = {"name": "main", "image": "none", "command": ["sleep"]}
        if padding_bytes:
            container["env"] = [{"name": "PADDING", "value": "x" * padding_bytes}]
        body = {
            "metadata": {"name": name, "labels": {"app": "web"} if labels is None else labels},
            "spec": {
                "nodeName": node,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        await self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", body)
        at = format_time(utc_now())
        status = {
            "phase": "Running",
            "podIP": pod_ip(number),
            "podIPs": [{"ip": pod_ip(number)}],
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": at}
                for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "image": "none",
                    "imageID": "",
                    "containerID": f"containerd://{number:064x}",
                    "state": {"running": {"startedAt": at}},
                }
            ],
        }
        await self.api.merge(pod_path(name, self.namespace, "status"), {"status": status})

    async def remove_pod(self, name: str) -> None:
        await self.api.delete(pod_path(name, self.namespace), grace_seconds=0)

    async def add_marker(self, *probes: Json, name: str = "marker", app: str = "web") -> Json:
        body = {
            "apiVersion": "apps.kruise.io/v1alpha1",
            "kind": "PodProbeMarker",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": app}},
                "probes": list(probes or [probe()]),
            },
        }
        return await self.api.create(marker_path("", self.namespace).rstrip("/"), body)

    async def edit_marker(self, *probes: Json, name: str = "marker") -> Json:
        change = {"spec": {"probes": list(probes)}}
        return await self.api.merge(marker_path(name, self.namespace), change)

    async def remove_marker(self, name: str = "marker") -> None:
        await self.api.delete(marker_path(name, self.namespace))


class Daemons:
    """The daemons of all nodes: `verdict` is what they find.

    Attributes:
        writes: how many statuses were written.
        refused: the errors that writes met, as (node, error).
    """

    def __init__(self, api: RawApi, world: World, verdict: Verdict = healthy) -> None:
        self.verdict = verdict
        self.writes = 0
        self.refused: list[tuple[str, KubeError]] = []
        self._api = api
        self._world = world
        self._moved: dict[tuple[str, str], tuple[str, str]] = {}

    def status_of(self, report: Json) -> Json:
        """What a daemon would publish now for the spec of this NodePodProbe."""
        return {
            "podProbeStatuses": [self._of(each) for each in report["spec"].get("podProbes", ())]
        }

    def _of(self, entry: Json) -> Json:
        now = format_time(utc_now())
        states = []
        for each in entry["probes"]:
            state, message = self.verdict(entry["name"], each["name"])
            key = (entry["uid"], each["name"])
            before = self._moved.get(key)
            if before is None or before[0] != state:
                self._moved[key] = (state, now)
            states.append(
                {
                    "name": each["name"],
                    "state": state,
                    "message": message,
                    "lastProbeTime": now,
                    "lastTransitionTime": self._moved[key][1],
                }
            )
        names = {key: entry[key] for key in ("name", "namespace", "uid")}
        return {**names, "probeStates": states}

    async def write(self, node: str) -> None:
        """One status of one node, if there is anything to say."""
        report = self._world.reports.newest(node)
        if report is None:
            return
        status = self.status_of(report)
        try:
            await self._api.merge(f"{node_pod_probe_path(node)}/status", {"status": status})
            self.writes += 1
        except NotFound:
            return
        except KubeError as error:
            self.refused.append((node, error))

    def behind(self) -> list[str]:
        """The nodes whose published status is not what a daemon would publish now."""
        return [
            each["metadata"]["name"]
            for each in self._world.reports.all()
            if _bare(self.status_of(each)) != _bare(each.get("status") or {})
        ]

    async def catch_up(self) -> None:
        """Every node that has something new to say says it."""
        await side_by_side(self.write(each) for each in self.behind())

    async def follow(self) -> None:
        """As daemons do: says what is new as soon as a spec has changed, until cancelled."""
        while True:
            await self._world.reports.wait("a daemon has news", self._any_behind, seconds=86_400)
            refused = len(self.refused)
            await self.catch_up()
            if len(self.refused) > refused:
                await asyncio.sleep(RETRY_SECONDS)

    def _any_behind(self) -> bool:
        return bool(self.behind())

    async def talk(self) -> None:
        """Each node writes again and again, as with messages that change in every period."""
        while True:
            await self.talk_once()

    async def talk_once(self) -> None:
        """Each node writes, whether it has news or not."""
        nodes = [each["metadata"]["name"] for each in self._world.reports.all()]
        if not nodes:
            await self._world.reports.next_change()
        await side_by_side(self.write(each) for each in nodes)

    async def renew_lease(self, node: str, *, ago_seconds: float = 0.0, seconds: int = 60) -> None:
        """The heartbeat of one node."""
        at = utc_now() - timedelta(seconds=ago_seconds)
        spec = {
            "holderIdentity": node,
            "leaseDurationSeconds": seconds,
            "renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        name = agent_lease_name(node)
        try:
            await self._api.create(LEASES, {"metadata": {"name": name}, "spec": spec})
        except AlreadyExists:
            await self._api.merge(f"{LEASES}/{name}", {"spec": spec})


def _bare(status: Json) -> dict[tuple[str, str], tuple[str, str]]:
    """States and messages, by pod and probe."""
    return {
        (each["uid"], state["name"]): (state["state"], state.get("message", ""))
        for each in status.get("podProbeStatuses") or ()
        for state in each.get("probeStates") or ()
    }
