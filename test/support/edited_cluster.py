"""Random edits by users, kubelets and daemons on a fake API server, and the end state that they must have."""

from random import Random
from typing import Any

from support import strategies
from support.builders import (
    Json,
    marker_wire,
    node_wire,
    pod_status_wire,
    pod_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi
from support.running_manager import running_manager, settle

from kruise_probe.api.kinds import Resource
from kruise_probe.api.names import MANAGER_FIELD_MANAGER, PAUSED_ANNOTATION
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers.pods.writes import MARKS_INTERVAL_SECONDS

NODE_NAMES = ("node-1", "node-2")
POD_NAMES = ("web-0", "web-1", "web-2", "web-3")
MARKER_NAMES = ("way", "gateway")


class EditedCluster:
    """Plays users, kubelets and daemons on a fake API server, and remembers the desired objects."""

    def __init__(self, random: Random) -> None:
        self.api = FakeApi()
        self.random = random
        self.pods: dict[str, Json] = {}
        self.markers: dict[str, Json] = {}
        self.states: dict[tuple[str, str], str] = {}
        for name in NODE_NAMES:
            self.api.put(NODES, node_wire(name))
        for number, name in enumerate(POD_NAMES):
            self.pods[name] = pod_wire(name, node=NODE_NAMES[number % 2])
            self.api.put(PODS, self.pods[name])

    def edit(self) -> None:
        """Makes one random edit."""
        often = [self.put_marker, self.flip]
        rarely = [self.label, self.move_ip, self.replace_pod, self.drop_marker, self.pause]
        faults = [self.overwrite_mark, self.break_plan]
        self.random.choice([*often, *often, *rarely, *faults])()

    def label(self) -> None:
        name, app = self.random.choice(POD_NAMES), self.random.choice(["web", "db"])
        self.pods[name]["metadata"]["labels"]["app"] = app
        self.api.edit(PODS, name, {"metadata": {"labels": {"app": app}}})

    def move_ip(self) -> None:
        name, ip = self.random.choice(POD_NAMES), f"127.1.0.{self.random.randrange(9)}"
        self.pods[name]["status"]["podIP"] = ip
        self.api.edit(PODS, name, {"status": {"podIP": ip}})

    def replace_pod(self) -> None:
        name = self.random.choice(POD_NAMES)
        node = self.random.choice(NODE_NAMES)
        self.api.remove(PODS, name)
        self.pods[name] = pod_wire(name, node=node, uid=f"uid-{self.random.randrange(10**9)}")
        self.api.put(PODS, self.pods[name])

    def put_marker(self) -> None:
        name = self.random.choice(MARKER_NAMES)
        probes = [
            probe_wire(
                each,
                condition=self.random.choice([None, *strategies.CONDITIONS]),
                policies=self.random.choice(strategies.POLICIES),
                periodSeconds=self.random.randrange(1, 4),
            )
            for each in self.random.choice([("p",), ("p", "way"), ("pp", "p", "way")])
        ]
        live = self.api.get(MARKERS, name)
        if live is not None and "deletionTimestamp" in live["metadata"]:
            return
        self.markers[name] = marker_wire(name, probes=probes)
        if live is None:
            self.api.put(MARKERS, self.markers[name])
        else:
            self.api.edit(MARKERS, name, {"spec": {"probes": probes}})

    def drop_marker(self) -> None:
        name = self.random.choice(MARKER_NAMES)
        if self.markers.pop(name, None) is not None:
            self.api.remove(MARKERS, name)

    def flip(self) -> None:
        marker, probe = self.random.choice(MARKER_NAMES), self.random.choice(["p", "pp", "way"])
        key = (self.random.choice(POD_NAMES), f"{marker}#{probe}")
        self.states[key] = "Failed" if self.state(*key) == "Succeeded" else "Succeeded"
        self.daemons_report()

    def pause(self) -> None:
        """Pauses a pod or a marker, or resumes it. `come_to_rest` resumes all."""
        value = self.random.choice(["true", "true", None])
        if self.random.random() < 0.5:
            self.annotate(PODS, self.random.choice(POD_NAMES), value)
        else:
            self.annotate(MARKERS, self.random.choice(MARKER_NAMES), value)

    def annotate(self, resource: Resource[Any], name: str, value: str | None) -> None:
        if self.api.get(resource, name) is not None:
            change = {"metadata": {"annotations": {PAUSED_ANNOTATION: value}}}
            self.api.edit(resource, name, change)

    def overwrite_mark(self) -> None:
        """Removes or overwrites what the manager wrote."""
        patch = {"metadata": {"labels": {"l1": self.random.choice([None, "?"])}}}
        self.api.edit(PODS, self.random.choice(POD_NAMES), patch, manager=MANAGER_FIELD_MANAGER)

    def break_plan(self) -> None:
        name = self.random.choice(NODE_NAMES)
        if self.api.get(NODE_POD_PROBES, name) is not None:
            self.api.edit(NODE_POD_PROBES, name, {"spec": {"podProbes": None}})

    def state(self, pod: str, probe: str) -> str:
        return self.states.get((pod, probe), "Succeeded")

    def daemons_report(self) -> None:
        """Each daemon writes a result for each probe in its spec."""
        for node in NODE_NAMES:
            npp = self.api.get(NODE_POD_PROBES, node)
            statuses = [
                pod_status_wire(
                    {"metadata": each},
                    *(
                        state_wire(probe["name"], self.state(each["name"], probe["name"]))
                        for probe in each["probes"]
                    ),
                )
                for each in (npp or {"spec": {}})["spec"].get("podProbes", ())
            ]
            if npp is not None:
                patch = {"status": {"podProbeStatuses": statuses}}
                self.api.edit(NODE_POD_PROBES, node, patch)

    async def come_to_rest(self) -> None:
        """Ends pauses, and waits until the manager has nothing to do, also after its write limits."""
        for name in POD_NAMES:
            self.annotate(PODS, name, None)
        for name in MARKER_NAMES:
            self.annotate(MARKERS, name, None)
        for _ in range(4):
            await settle(MARKS_INTERVAL_SECONDS)
            self.daemons_report()
        await settle(MARKS_INTERVAL_SECONDS)

    def copy(self) -> "EditedCluster":
        """The same desired objects on a new cluster."""
        fresh = EditedCluster(Random(0))
        fresh.states = self.states
        for wire in self.pods.values():
            fresh.api.put(PODS, wire)
        for wire in self.markers.values():
            fresh.api.put(MARKERS, wire)
        return fresh

    def looks(self) -> dict[str, Any]:
        """What users see, without timestamps."""
        seen: dict[str, Any] = {}
        for name in POD_NAMES:
            wire = self.api.get(PODS, name)
            assert wire is not None
            conditions = {
                each["type"]: (each["status"], each.get("reason", ""))
                for each in wire["status"]["conditions"]
            }
            meta = wire["metadata"]
            seen[name] = (meta["labels"], meta.get("annotations") or {}, conditions)
        for name in NODE_NAMES:
            npp = self.api.get(NODE_POD_PROBES, name)
            seen[name] = npp["spec"] if npp is not None else None
        for name in MARKER_NAMES:
            marker = self.api.get(MARKERS, name)
            if marker is not None:
                status = marker["status"]
                numbers = {key: value for key, value in status.items() if isinstance(value, int)}
                del numbers["observedGeneration"]
                conditions = {each["type"]: each["status"] for each in status["conditions"]}
                seen[name] = (numbers, conditions, marker["metadata"]["finalizers"])
        return seen


async def assert_as_from_scratch(cluster: EditedCluster) -> None:
    """While a manager runs: asserts that a new manager on a new cluster comes to the same end state."""
    await cluster.come_to_rest()
    fresh = cluster.copy()
    async with running_manager(fresh.api):
        await fresh.come_to_rest()
    assert cluster.looks() == fresh.looks()
