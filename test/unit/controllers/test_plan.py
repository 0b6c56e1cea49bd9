"""What goes into NodePodProbe.spec."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import strategies
from support.builders import (
    container_wire,
    marker,
    npp_wire,
    owned_fields,
    pod,
    policy_wire,
    probe_wire,
)
from support.cases import cases
from support.computations import at_once
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.node_pod_probe import PodProbe
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.plan import plan_steps

Entries = tuple[PodProbe, ...]
MARK = owned_fields(labels=["l"])


def planned(
    pods: list[Pod], markers: list[PodProbeMarker], current: Entries = (), namespace: str = ""
) -> Entries:
    compiled = [compile_marker(each) for each in markers]
    matching = Matching(lambda namespace: [each for each in pods if each.namespace == namespace])
    for each in compiled:
        matching.set_marker(each)
    ending = [each for each in compiled if each.deleting]
    steps = plan_steps(pods, matching.considered_of, current, ending=ending, namespace=namespace)
    return at_once(steps).entries


def names(entries: Entries) -> dict[str, list[str]]:
    return {each.name: [probe.name for probe in each.probes] for each in entries}


@cases(
    "of probed",
    running=(pod(), True),
    pending_but_initialised=(pod(phase="Pending"), True),
    without_an_ip_yet=(pod(ip=""), True),
    not_initialised=(pod(initialized=False), False),
    terminating=(pod(deleting=True), False),
    succeeded=(pod(phase="Succeeded"), False),
    failed=(pod(phase="Failed"), False),
    not_scheduled=(pod(node=""), False),
    static=(pod(annotations={"kubernetes.io/config.mirror": "x"}), False),
    no_such_container=(pod(containers=[container_wire("other")]), False),
)
def test_a_pod_is_planned_while_it_can_be_probed(of: Pod, probed: bool) -> None:
    assert bool(planned([of], [marker()])) is probed


@cases(
    "of port",
    resolved=(pod(containers=[container_wire(ports={"http": 80})]), 80),
    left_to_the_daemon=(pod(containers=[container_wire(ports={"x": 80})]), "http"),
    of_a_sidecar=(
        pod(
            containers=[container_wire("other")],
            init_containers=[container_wire(ports={"http": 90}, sidecar=True)],
        ),
        90,
    ),
)
@pytest.mark.parametrize("handler", ["httpGet", "tcpSocket"])
def test_a_port_name_is_resolved_from_its_container(handler: str, of: Pod, port: int | str) -> None:
    probe = probe_wire(handler={handler: {"port": "http"}})
    (entry,) = planned([of], [marker(probes=[probe])])
    action = (entry.probes)[0].probe.http_get or (entry.probes)[0].probe.tcp_socket
    assert action is not None
    assert action.port == port


@cases(
    "started expected",
    not_yet=([], ["web#plain"]),
    started=(["slow"], ["web#gated", "web#plain"]),
    another_one_started=(["main"], ["web#plain"]),
)
def test_a_startup_probe_gates_its_own_container_only(
    started: list[str], expected: list[str]
) -> None:
    containers = [container_wire(), container_wire("slow", startup_probe=True)]
    probes = [probe_wire("gated", container="slow", condition="c/gated"), probe_wire("plain")]
    entries = planned([pod(containers=containers, started=started)], [marker(probes=probes)])
    assert names(entries) == {"web-0": expected}


def test_entries_are_ordered_by_pod_then_marker_age_then_position() -> None:
    markers = [
        marker("b", probes=[probe_wire("2", condition="c2"), probe_wire("1", condition="c1")]),
        marker("c", created="2025-01-01T00:00:00Z"),
    ]
    pods = [pod("web-1"), pod("web-0"), pod("x", namespace="a-first")]
    entries = planned(pods, [*markers, marker("a", namespace="a-first")])
    assert [(each.namespace, each.name) for each in entries] == [
        ("a-first", "x"),
        ("default", "web-0"),
        ("default", "web-1"),
    ]
    assert names(entries)["web-0"] == ["c#healthy", "b#2", "b#1"]


ENDING = marker(
    "way", deleting=True, probes=[probe_wire(policies=[policy_wire(labels={"l": "1"})])]
)
OTHER = marker("gateway", probes=[probe_wire("p", condition="c/other")])


@cases(
    "marked kept",
    one_that_matches=(pod("web-1", labels={"app": "web", "l": "1"}, owned=MARK), True),
    one_that_no_longer_matches=(pod("web-1", labels={"l": "1"}, owned=MARK), True),
    of_another_namespace=(pod("x", namespace="other", labels={"l": "1"}, owned=MARK), False),
)
def test_a_marked_pod_keeps_the_entries_of_a_deleted_marker_on_its_node(
    marked: Pod, kept: bool
) -> None:
    current = planned([pod(), marked], [marker("way"), OTHER])
    entries = names(planned([pod(), marked], [ENDING, OTHER], current))
    assert entries["web-0"] == ["gateway#p", *["way#healthy"] * kept]


def decoded_pods(wires: list[Json]) -> list[Pod]:
    return [PODS.decode(msgspec.json.encode(each)) for each in wires]


def decoded_markers(wires: list[Json]) -> list[PodProbeMarker]:
    return [MARKERS.decode(msgspec.json.encode(each)) for each in wires]


some_pods = st.tuples(strategies.pods("web-0"), strategies.pods("web-1")).map(list)


def owners(entries: Entries) -> set[tuple[str, NamespacedName, str]]:
    """(pod uid, marker, probe) of all entries."""
    return {
        (each.uid, NamespacedName(each.namespace, name.marker), name.probe)
        for each in entries
        for name in (ProbeName.parse(probe.name) for probe in each.probes)
    }


@given(some_pods, strategies.marker_sets())
def test_written_entries_equal_stored_ones(wires: list[Json], markers: list[Json]) -> None:
    """And a plan that was written needs no other write."""
    entries = planned(decoded_pods(wires), decoded_markers(markers))
    body = msgspec.json.encode(npp_wire() | {"spec": {"podProbes": msgspec.to_builtins(entries)}})
    current = NODE_POD_PROBES.decode(body).spec.pod_probes
    assert current == entries
    assert planned(decoded_pods(wires), decoded_markers(markers), current) == entries


@given(some_pods, strategies.marker_sets(), st.randoms())
def test_the_plan_depends_on_no_order(
    wires: list[Json], markers: list[Json], random: Random
) -> None:
    expected = planned(decoded_pods(wires), decoded_markers(markers))
    shuffled = [list(wires), list(markers)]
    for each in shuffled:
        random.shuffle(each)
    assert planned(decoded_pods(shuffled[0]), decoded_markers(shuffled[1])) == expected


@given(some_pods, strategies.marker_sets(min_size=1))
def test_removing_a_marker_removes_only_its_own_entries(
    wires: list[Json], markers: list[Json]
) -> None:
    """However much names and namespaces overlap (`way` and `gateway`)."""
    pods = decoded_pods(wires)
    gone, *rest = decoded_markers(markers)
    before = planned(pods, [gone, *rest])
    after = planned(pods, rest, before)
    assert owners(after) == {each for each in owners(before) if each[1] != gone.key}


@given(some_pods, strategies.marker_sets(min_size=2))
def test_markers_add_up(wires: list[Json], markers: list[Json]) -> None:
    pods = decoded_pods(wires)
    first, *rest = decoded_markers(markers)
    together = owners(planned(pods, [first, *rest]))
    assert together == owners(planned(pods, [first])) | owners(planned(pods, rest))
