"""Whatever happened, and in whatever order: the end is what a fresh manager would make of the same cluster."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from kruise_probe.api.names import MANAGER_FIELD_MANAGER, MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS

NODE_NAMES = ("node-1", "node-2")
POD_NAMES = ("web-0", "web-1", "web-2", "web-3")
MARKER_NAMES = ("way", "gateway")
EDITS_PER_RUN = 100
EDITS_PER_CHECK = 10


class Cluster:
    """Users, kubelets and daemons at work on a fake API server; remembers what they want."""

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
        """One thing that somebody does."""
        often = [self.put_marker, self.flip]
        rarely = [self.label, self.move_ip, self.replace_pod, self.drop_marker]
        faults = [self.meddle, self.break_plan]
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

    def meddle(self) -> None:
        """Somebody takes away, or overwrites, what we wrote."""
        patch = {"metadata": {"labels": {"l1": self.random.choice([None, "?"])}}}
        self.api.edit(PODS, self.random.choice(POD_NAMES), patch, manager=MANAGER_FIELD_MANAGER)

    def break_plan(self) -> None:
        name = self.random.choice(NODE_NAMES)
        if self.api.get(NODE_POD_PROBES, name) is not None:
            self.api.edit(NODE_POD_PROBES, name, {"spec": {"podProbes": None}})

    def state(self, pod: str, probe: str) -> str:
        return self.states.get((pod, probe), "Succeeded")

    def daemons_report(self) -> None:
        """Each daemon publishes a result for what it is asked, and for nothing else."""
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
        """Until nobody has anything to do any more."""
        for _ in range(4):
            await settle()
            self.daemons_report()
        await settle()

    def copy(self) -> "Cluster":
        """The same wishes, on a cluster where nothing has happened yet."""
        fresh = Cluster(Random(0))
        fresh.states = self.states
        for wire in self.pods.values():
            fresh.api.put(PODS, wire)
        for wire in self.markers.values():
            fresh.api.put(MARKERS, wire)
        return fresh

    def looks(self) -> dict[str, Any]:
        """What users see, stamps left out."""
        seen: dict[str, Any] = {}
        for name in POD_NAMES:
            wire = self.api.get(PODS, name)
            assert wire is not None
            conditions = {each["type"]: each["status"] for each in wire["status"]["conditions"]}
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


@pytest.mark.parametrize("seed", range(10))
async def test_the_end_is_what_a_fresh_manager_would_make_of_it(seed: int) -> None:
    """1,000 random edits of two markers and four pods, with restarts of the manager in between."""
    random = Random(seed)
    cluster = Cluster(random)
    for _ in range(EDITS_PER_RUN // EDITS_PER_CHECK):
        async with running_manager(cluster.api):
            for _ in range(EDITS_PER_CHECK):
                cluster.edit()
                await asyncio.sleep(random.choice([0.0, 0.001, 0.003, 0.1, 1.5]))
            if random.random() < 0.8:
                await cluster.come_to_rest()
                fresh = cluster.copy()
                async with running_manager(fresh.api):
                    await fresh.come_to_rest()
                assert cluster.looks() == fresh.looks()


async def test_the_finalizer_stands_on_every_marker_at_rest() -> None:
    cluster = Cluster(Random(1))
    cluster.put_marker()
    async with running_manager(cluster.api):
        await cluster.come_to_rest()
    (name,) = cluster.markers
    wire = cluster.api.get(MARKERS, name)
    assert wire is not None
    assert wire["metadata"]["finalizers"] == [MARKER_FINALIZER]


odd_text = st.text(max_size=20) | st.sampled_from(["", "#", "a#b", "#p", "way#", "Ready", "/"])
odd_number = st.integers(-(2**63), 2**63 - 1)
odd_handler = st.fixed_dictionaries(
    {},
    optional={
        "exec": st.fixed_dictionaries({}, optional={"command": st.lists(odd_text, max_size=3)}),
        "httpGet": st.fixed_dictionaries(
            {"port": odd_number | odd_text},
            optional={
                "host": odd_text,
                "path": odd_text,
                "scheme": odd_text,
                "httpHeaders": st.lists(
                    st.fixed_dictionaries({"name": odd_text, "value": odd_text}), max_size=2
                ),
            },
        ),
        "tcpSocket": st.fixed_dictionaries({"port": odd_number | odd_text}),
        "grpc": st.fixed_dictionaries(
            {"port": odd_number}, optional={"service": odd_text, "mode": odd_text}
        ),
        "periodSeconds": odd_number,
        "failureThreshold": odd_number,
    },
)
odd_map = st.dictionaries(odd_text, odd_text, max_size=3)
odd_probe = st.fixed_dictionaries(
    {"name": odd_text, "containerName": odd_text | st.just("main"), "probe": odd_handler},
    optional={
        "podConditionType": odd_text,
        "markerPolicy": st.lists(
            st.fixed_dictionaries(
                {"state": odd_text | st.sampled_from(["Succeeded", "Failed"])},
                optional={"labels": odd_map, "annotations": odd_map},
            ),
            max_size=3,
        ),
    },
)
odd_selector = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": odd_map | st.just({"app": "web"}),
        "matchExpressions": st.lists(
            st.fixed_dictionaries(
                {"key": odd_text, "operator": odd_text | st.sampled_from(["In", "Exists"])},
                optional={"values": st.lists(odd_text, max_size=2)},
            ),
            max_size=2,
        ),
    },
)
odd_stamp = st.sampled_from(["", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "soon"])
odd_statuses = st.lists(
    st.fixed_dictionaries(
        {
            "name": odd_text | st.just("web-0"),
            "namespace": odd_text | st.just("default"),
            "uid": odd_text | st.just("uid-default-web-0"),
            "probeStates": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {"name": odd_text, "state": odd_text},
                    optional={
                        "message": odd_text,
                        "lastProbeTime": odd_stamp,
                        "lastTransitionTime": odd_stamp,
                    },
                ),
                max_size=3,
            ),
        }
    ),
    max_size=3,
)
odd_entries = st.lists(
    st.fixed_dictionaries(
        {
            "name": odd_text,
            "namespace": odd_text,
            "uid": odd_text,
            "IP": odd_text,
            "probes": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {"name": odd_text, "containerName": odd_text, "probe": odd_handler}
                ),
                max_size=2,
            ),
        }
    ),
    max_size=3,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(st.lists(odd_probe, max_size=3), odd_selector, odd_entries, odd_statuses)
async def test_objects_that_fit_their_schema_never_delay_another(
    probes: list[Json], selector: Json | None, entries: list[Json], statuses: list[Json]
) -> None:
    """However absurd they are."""
    api = FakeApi()
    api.put(NODES, node_wire())
    api.put(PODS, pod_wire())
    api.put(MARKERS, marker_wire("odd", probes=probes, selector=selector or {}))
    api.put(MARKERS, marker_wire("good"))
    async with running_manager(api):
        await settle()
        odd = {"spec": {"podProbes": entries}, "status": {"podProbeStatuses": statuses}}
        api.edit(NODE_POD_PROBES, "node-1", odd)
        await settle()
        good = [pod_status_wire(pod_wire(), state_wire("good#healthy"))]
        api.edit(NODE_POD_PROBES, "node-1", {"status": {"podProbeStatuses": [*statuses, *good]}})
        await settle()
        npp, pod, marker = (
            api.get(NODE_POD_PROBES, "node-1"),
            api.get(PODS, "web-0"),
            api.get(MARKERS, "odd"),
        )
        assert npp is not None
        assert pod is not None
        assert marker is not None
        asked = [probe["name"] for each in npp["spec"]["podProbes"] for probe in each["probes"]]
        assert "good#healthy" in asked
        types = {each["type"] for each in pod["status"]["conditions"]}
        assert "example.com/healthy" in types
        assert marker["status"]["observedGeneration"] == 1
        msgspec.json.encode(pod)
