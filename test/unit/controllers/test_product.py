"""After any events in any order, the cluster is as a new manager would make it."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from support.builders import (
    Json,
    marker_wire,
    node_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.edited_cluster import EditedCluster, assert_as_from_scratch
from support.fake_api import FakeApi
from support.running_manager import (
    RecordingRecorder,
    loop_clock,
    manager_over,
    running,
    running_manager,
    settle,
)

from kruise_probe.api.names import MANAGER_FIELD_MANAGER, MARKER_FINALIZER
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.client.config import ClusterConfig
from kruise_probe.controllers.product import ManagerOptions, build
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.health import Checks

EDITS_PER_RUN = 100
EDITS_PER_CHECK = 10


@pytest.mark.parametrize("seed", range(10))
async def test_the_final_state_equals_that_of_a_new_manager(seed: int) -> None:
    """1,000 random edits of two markers and four pods, with restarts of the manager in between."""
    random = Random(seed)
    cluster = EditedCluster(random)
    for _ in range(EDITS_PER_RUN // EDITS_PER_CHECK):
        async with running_manager(cluster.api):
            for _ in range(EDITS_PER_CHECK):
                cluster.edit()
                await asyncio.sleep(random.choice([0.0, 0.001, 0.003, 0.1, 1.5]))
            if random.random() < 0.8:
                await assert_as_from_scratch(cluster)


async def test_every_marker_has_the_finalizer() -> None:
    cluster = EditedCluster(Random(1))
    cluster.put_marker()
    async with running_manager(cluster.api):
        await cluster.come_to_rest()
    (name,) = cluster.markers
    wire = cluster.api.get(MARKERS, name)
    assert wire is not None
    assert wire["metadata"]["finalizers"] == [MARKER_FINALIZER]


class TestOptions:
    """The options of the command line reach the controllers."""

    async def test_each_controller_has_its_own_number_of_workers(self) -> None:
        api = FakeApi()
        manager = manager_over(api)
        options = ManagerOptions("kruise-system", marker_workers=3, node_workers=5, pod_workers=7)
        build(manager, options, writer=api, recorder=RecordingRecorder(), now=loop_clock)
        async with running(manager):
            await settle()
            name = "controller_runtime_max_concurrent_reconciles"
            workers = {
                each: REGISTRY.get_sample_value(name, {"controller": each})
                for each in ("podprobemarker", "nodepodprobe", "podmarks", "daemons")
            }
        assert list(workers.values()) == [3, 5, 7, 4]

    async def test_leases_are_read_in_the_system_namespace_and_the_rest_in_ours(self) -> None:
        api = FakeApi()
        read: dict[str, str] = {}

        def source(resource: Any, namespace: str) -> Any:
            read[resource.plural] = namespace
            return api.sources[resource.plural]

        manager = Manager(
            ClusterConfig.plain("http://127.0.0.1:1"),
            name=MANAGER_FIELD_MANAGER,
            ready=Checks(),
            namespace="team",
            source=source,
            now=loop_clock,
        )
        informers = build(
            manager, ManagerOptions("the-system"), writer=api, recorder=RecordingRecorder()
        )
        assert set(informers) == set(manager.informers)
        async with running(manager):
            await settle()
        assert read == {
            "podprobemarkers": "team",
            "pods": "team",
            "nodes": "",
            "nodepodprobes": "",
            "leases": "the-system",
        }

    async def test_a_reserved_label_is_written_if_it_is_allowed(self) -> None:
        key = "pod-template-hash"
        for allowed, labels in ((frozenset({key}), {"app": "web", key: "x"}), ((), {"app": "web"})):
            api = cluster_with(policy_wire(labels={key: "x"}))
            options = ManagerOptions("kruise-system", allowed_labels=frozenset(allowed))
            manager = manager_over(api)
            build(manager, options, writer=api, recorder=RecordingRecorder(), now=loop_clock)
            async with running(manager):
                await settle()
                report(api, "fine")
                await settle()
            wire = api.get(PODS, "web-0")
            assert wire is not None
            assert wire["metadata"]["labels"] == labels

    @pytest.mark.parametrize(("interval", "writes"), [(0.0, 10), (1.0, 6), (60.0, 3)])
    async def test_the_interval_of_messages_is_that_of_the_option(
        self, interval: float, writes: int
    ) -> None:
        """Ten messages in 3.5 s: a burst of three, then one per interval."""
        api = cluster_with()
        options = ManagerOptions("kruise-system", message_update_interval_seconds=interval)
        manager = manager_over(api)
        build(manager, options, writer=api, recorder=RecordingRecorder(), now=loop_clock)
        async with running(manager):
            await settle()
            report(api, "first")
            await settle()
            before = len(api.writes)
            for number in range(10):
                report(api, f"message {number}")
                await settle(0.35)
            assert api.count("Pod", since=before) == {"Pod/status": writes}


def cluster_with(*policies: Json) -> FakeApi:
    """A node, a pod and a marker whose probe has these policies."""
    api = FakeApi()
    api.put(NODES, node_wire())
    api.put(PODS, pod_wire())
    api.put(MARKERS, marker_wire(probes=[probe_wire(policies=policies)]))
    return api


def report(api: FakeApi, message: str) -> None:
    """The daemon publishes a result of the pod."""
    statuses = [pod_status_wire(pod_wire(), state_wire(message=message))]
    api.edit(NODE_POD_PROBES, "node-1", {"status": {"podProbeStatuses": statuses}})


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
async def test_malformed_objects_never_delay_another(
    probes: list[Json], selector: Json | None, entries: list[Json], statuses: list[Json]
) -> None:
    """Objects that fit their schema, with random values."""
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
        planned = [probe["name"] for each in npp["spec"]["podProbes"] for probe in each["probes"]]
        assert "good#healthy" in planned
        types = {each["type"] for each in pod["status"]["conditions"]}
        assert "example.com/healthy" in types
        assert marker["status"]["observedGeneration"] == 1
        msgspec.json.encode(pod)
