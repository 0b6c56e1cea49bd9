"""What goes into NodePodProbe.spec."""

from random import Random
from typing import NamedTuple

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
from support.wire import decoded

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.node_pod_probe import PodProbe
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, PODS
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.plan import plan_steps

Pods = list[Pod]
Markers = list[PodProbeMarker]
Entries = tuple[PodProbe, ...]
MARK = owned_fields(labels=["l"])


def planned(
    pods: Pods,
    markers: Markers,
    current: Entries = (),
    namespace: str = "",
) -> Entries:
    compiled = [compile_marker(marker) for marker in markers]
    matching = Matching(lambda namespace: [pod for pod in pods if pod.namespace == namespace])
    for compiled_marker in compiled:
        matching.set_marker(compiled_marker)
    ending = [marker for marker in compiled if marker.deleting]
    steps = plan_steps(
        pods,
        matching.considered_of,
        current,
        ending=ending,
        namespace=namespace,
    )
    return at_once(steps).entries


def names(entries: Entries) -> dict[str, list[str]]:
    """The probes of each pod."""
    found = {}
    for entry in entries:
        found[entry.name] = [probe.name for probe in entry.probes]
    return found


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
    (entry,) = planned(
        [of],
        [marker(probes=[probe])],
    )
    planned_probe = entry.probes[0].probe
    action = planned_probe.http_get or planned_probe.tcp_socket
    assert action is not None
    assert action.port == port


@cases(
    "started expected",
    not_yet=([], ["web#plain"]),
    started=(["slow"], ["web#gated", "web#plain"]),
    another_one_started=(["main"], ["web#plain"]),
)
def test_a_startup_probe_gates_its_own_container_only(
    started: list[str],
    expected: list[str],
) -> None:
    containers = [container_wire(), container_wire("slow", startup_probe=True)]
    probes = [probe_wire("gated", container="slow", condition="c/gated"), probe_wire("plain")]
    entries = planned(
        [pod(containers=containers, started=started)],
        [marker(probes=probes)],
    )
    assert names(entries) == {"web-0": expected}


def test_entries_are_ordered_by_pod_then_marker_age_then_position() -> None:
    markers = [
        marker(
            "b",
            probes=[probe_wire("2", condition="c2"), probe_wire("1", condition="c1")],
        ),
        marker("c", created="2025-01-01T00:00:00Z"),
    ]
    pods = [pod("web-1"), pod("web-0"), pod("x", namespace="a-first")]
    entries = planned(
        pods,
        [*markers, marker("a", namespace="a-first")],
    )
    assert [(entry.namespace, entry.name) for entry in entries] == [
        ("a-first", "x"),
        ("default", "web-0"),
        ("default", "web-1"),
    ]
    assert names(entries)["web-0"] == ["c#healthy", "b#2", "b#1"]


LABELLING = probe_wire(policies=[policy_wire(labels={"l": "1"})])
ENDING = marker("way", deleting=True, probes=[LABELLING])
OTHER = marker(
    "gateway",
    probes=[probe_wire("p", condition="c/other")],
)


@cases(
    "marked kept",
    one_that_matches=(pod("web-1", labels={"app": "web", "l": "1"}, owned=MARK), True),
    one_that_no_longer_matches=(pod("web-1", labels={"l": "1"}, owned=MARK), True),
    of_another_namespace=(pod("x", namespace="other", labels={"l": "1"}, owned=MARK), False),
)
def test_a_marked_pod_keeps_the_entries_of_a_deleted_marker_on_its_node(
    marked: Pod,
    kept: bool,
) -> None:
    pods = [pod(), marked]
    current = planned(
        pods,
        [marker("way"), OTHER],
    )
    entries = names(planned(pods, [ENDING, OTHER], current))
    assert entries["web-0"] == (["gateway#p", "way#healthy"] if kept else ["gateway#p"])


def pod_named(name: str) -> st.SearchStrategy[Pod]:
    return strategies.pods(name).map(lambda wire: decoded(PODS, wire))


def some_markers(min_size: int = 0) -> st.SearchStrategy[Markers]:
    wires = strategies.marker_sets(min_size=min_size)
    return wires.map(lambda found: [decoded(MARKERS, wire) for wire in found])


some_pods = st.tuples(pod_named("web-0"), pod_named("web-1")).map(list)


class Planned(NamedTuple):
    """A probe of an entry."""

    pod_uid: str
    marker: NamespacedName
    probe: str


def planned_probes(entries: Entries) -> set[Planned]:
    found = set()
    for entry in entries:
        for probe in entry.probes:
            name = ProbeName.parse(probe.name)
            key = NamespacedName(entry.namespace, name.marker)
            found.add(Planned(entry.uid, key, name.probe))
    return found


@given(some_pods, some_markers())
def test_written_entries_equal_stored_ones(pods: Pods, markers: Markers) -> None:
    """And a plan that was written needs no other write."""
    entries = planned(pods, markers)
    wire = npp_wire(entries=msgspec.to_builtins(entries))
    stored = decoded(NODE_POD_PROBES, wire).spec.pod_probes
    assert stored == entries
    assert planned(pods, markers, stored) == entries


@given(some_pods, some_markers(), st.randoms())
def test_the_plan_depends_on_no_order(
    pods: Pods,
    markers: Markers,
    random: Random,
) -> None:
    expected = planned(pods, markers)
    random.shuffle(pods)
    random.shuffle(markers)
    assert planned(pods, markers) == expected


@given(some_pods, some_markers(min_size=1))
def test_removing_a_marker_removes_only_its_own_entries(
    pods: Pods,
    markers: Markers,
) -> None:
    """However much names and namespaces overlap (`way` and `gateway`)."""
    gone, *rest = markers
    before = planned(pods, markers)
    after = planned(pods, rest, before)
    others = {probe for probe in planned_probes(before) if probe.marker != gone.key}
    assert planned_probes(after) == others


@given(some_pods, some_markers(min_size=2))
def test_markers_add_up(pods: Pods, markers: Markers) -> None:
    first, *rest = markers
    of_first = planned_probes(planned(pods, [first]))
    of_rest = planned_probes(planned(pods, rest))
    assert planned_probes(planned(pods, markers)) == of_first | of_rest
