"""A cluster as a test of the whole manager sees it: results come in, and marks, specs and statuses come out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from support.builders import (
    lease_wire,
    marker_wire,
    node_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi
from support.running_manager import loop_clock, running_manager, settle
from support.wire import Json

from kruise_probe.api.meta import Resource
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import format_micro_time

C = "example.com/healthy"
POLICIES = (
    policy_wire("Succeeded", {"healthy": "true"}, {"cost": "10"}),
    policy_wire("Failed", {"sick": "true"}),
)

Marks = tuple[dict[str, str], dict[str, str], set[str]]
"""Labels, annotations and types of conditions of a pod."""
MARKED: Marks = ({"healthy": "true"}, {"cost": "10"}, {C})
BARE: Marks = ({}, {}, set())


class Scene(FakeApi):
    """A fake API server with one node. Each action is followed by `seconds` for the manager."""

    def __init__(self) -> None:
        super().__init__()
        self.put_node("node-1")

    def put_node(self, name: str, *pods: str, **more: Any) -> None:
        """Creates or replaces a node, and pods on it."""
        self.put(NODES, node_wire(name, **more))
        for pod in pods:
            self.put(PODS, pod_wire(pod, node=name))

    def put_marker(self, *probes: Json, name: str = "web", **more: Any) -> None:
        """Creates or replaces a marker with these probes."""
        self.put(MARKERS, marker_wire(name, probes=probes, **more))

    @asynccontextmanager
    async def running(self, *states: Json, **options: Any) -> AsyncIterator[None]:
        """A manager that has handled what was there, and then these results of `web-0`."""
        async with running_manager(self, **options):
            await settle()
            if states:
                await self.report(*states)
            yield

    async def run(self, *states: Json, seconds: float = 4.0, **options: Any) -> None:
        """Runs a manager for a while, which gets these results, and stops it."""
        async with self.running(*states, **options):
            await settle(seconds)

    async def report(self, *states: Json, pod: str = "web-0", seconds: float = 4.0) -> None:
        """The daemon of the pod's node publishes these results, and no others."""
        wire = self.read(PODS, pod)
        self.publish(pod_status_wire(wire, *states), node=wire["spec"]["nodeName"])
        await settle(seconds)

    async def report_each(self, *states: str, message: str = "", seconds: float = 4.0) -> None:
        """The daemons publish these states of `web-1`, `web-2` …"""
        for number, state in enumerate(states, start=1):
            result = state_wire(state=state, message=message)
            await self.report(result, pod=f"web-{number}", seconds=0)
        await settle(seconds)

    @asynccontextmanager
    async def reported(
        self, *states: str, message: str = "", **options: Any
    ) -> AsyncIterator[None]:
        """A running manager that has written these states of `web-1`, `web-2` …"""
        async with self.running(**options):
            await self.report_each(*states, message=message)
            yield

    @asynccontextmanager
    async def lagging(self, resource: Resource[Any]) -> AsyncIterator[None]:
        """Delays the watch events of a kind until the end."""
        self.sources[resource.plural].hold()
        yield
        self.sources[resource.plural].release()
        await settle()

    async def change(
        self, resource: Resource[Any], name: str, patch: Json, *, seconds: float = 4.0, **more: str
    ) -> None:
        self.edit(resource, name, patch, **more)
        await settle(seconds)

    async def relabel(
        self, pod: str = "web-0", *, seconds: float = 4.0, **labels: str | None
    ) -> None:
        await self.change(
            PODS,
            pod,
            {"metadata": {"labels": labels}},
            seconds=seconds,
        )

    async def change_probes(self, *probes: Json, marker: str = "web", seconds: float = 4.0) -> None:
        await self.change(
            MARKERS,
            marker,
            {"spec": {"probes": list(probes)}},
            seconds=seconds,
        )

    async def drop(self, resource: Resource[Any], name: str, *, seconds: float = 4.0) -> None:
        """Deletes an object as another client."""
        self.remove(resource, name)
        await settle(seconds)

    async def recover(self, *, seconds: float = 60.0) -> None:
        """The server refuses no writes any more, and retries have time."""
        self.before = lambda write: None
        await settle(seconds)

    async def provider_reports(
        self, status: str, message: str = "", *, seconds: float = 4.0
    ) -> None:
        """The provider of a virtual node sets the condition of its probe."""
        condition = {"type": "example.com/healthy", "status": status, "message": message}
        patch = {"status": {"conditions": [condition]}}
        await self.change(
            PODS,
            "web-0",
            patch,
            manager="provider",
            seconds=seconds,
        )

    def renew(self, node: str = "node-1", *, ahead_seconds: float = 0.0) -> None:
        """The daemon of the node renews its Lease; its clock is `ahead_seconds` ahead of ours."""
        at = loop_clock() + timedelta(seconds=ahead_seconds)
        self.put(LEASES, lease_wire(node, renewed=format_micro_time(at)))

    def labels(self, pod: str = "web-0") -> dict[str, str]:
        """Beside `app`."""
        found = self.read(PODS, pod)["metadata"]["labels"]
        return {key: value for key, value in found.items() if key != "app"}

    def annotations(self, pod: str = "web-0") -> dict[str, str]:
        return self.read(PODS, pod)["metadata"].get("annotations") or {}

    def conditions(self, pod: str = "web-0") -> dict[str, Json]:
        """By type, beside the kubelet's own."""
        found = self.read(PODS, pod)["status"]["conditions"]
        return {
            condition["type"]: condition
            for condition in found
            if condition["type"] != "Initialized"
        }

    def condition(self, type: str = C, pod: str = "web-0") -> tuple[str, str]:
        """Its status and its reason, empty if there is none."""
        found = self.conditions(pod).get(type, {})
        return found.get("status", ""), found.get("reason", "")

    def marks(self, pod: str = "web-0") -> Marks:
        return self.labels(pod), self.annotations(pod), set(self.conditions(pod))

    def probes(self, node: str = "node-1") -> dict[str, list[str]]:
        """The names in the spec of a NodePodProbe, by pod."""
        entries = self.read(NODE_POD_PROBES, node)["spec"].get("podProbes") or ()
        return {entry["name"]: [probe["name"] for probe in entry["probes"]] for entry in entries}

    def status(self, marker: str = "web") -> Json:
        found: Json = self.read(MARKERS, marker)["status"]
        return found

    def counts(self) -> tuple[int, ...]:
        """The counts in the status of marker `web`."""
        fields = ("matchedPods", "succeeded", "failed", "unknown", "nodesBehind")
        status = self.status()
        return tuple(status[field] for field in fields)

    def says(self, type: str = "Degraded", marker: str = "web") -> tuple[str, str, str]:
        """Status, reason and message of a marker's condition."""
        found = next(
            condition
            for condition in self.status(marker)["conditions"]
            if condition["type"] == type
        )
        return found["status"], found["reason"], found["message"]


def scene(*policies: Json, pods: int = 1) -> Scene:
    """Pods `web-0`, `web-1` … on one node, and a marker whose probe has these policies."""
    made = Scene()
    made.put_node("node-1", *(f"web-{number}" for number in range(pods)))
    made.put_marker(probe_wire(policies=policies))
    return made
