"""Which change of a NodePodProbe is a new state, a first result, or a message."""

from itertools import pairwise

import msgspec
import pytest
from support.builders import (
    container_wire,
    entry_of,
    marker,
    npp_wire,
    pod,
    pod_status_wire,
    pod_wire,
    probe_wire,
    state_wire,
)

from kruise_probe.api.core import ExecAction, HTTPGetAction, Probe
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.node_index import (
    NodePodProbeIndex,
    PodResultChange,
    ProbesChange,
)

KEY = NamespacedName("default", "web-0")
POD = pod(containers=[container_wire("main", ports={"http": 8080})])
MESSAGE, FIRST, STATE = PodResultChange

A_GOOD = state_wire("a#p", "Succeeded")
A_GOOD_MESSAGE = state_wire("a#p", "Succeeded", "more")
A_BAD = state_wire("a#p", "Failed")
A_UNKNOWN = state_wire("a#p", "Unknown")
A_HASH = state_wire("a#p", "Succeeded", probe_hash="0")
A_LATER = state_wire("a#p", "Succeeded", probed="2026-01-01T09:00:00Z")
B_GOOD = state_wire("b#p", "Succeeded")


def report(*states: dict[str, object], in_spec: str = "ab") -> NodePodProbe:
    """The node's NodePodProbe: the markers whose probe is in the spec, and the published states."""
    of_pod = pod_wire()
    probes = [
        {"name": f"{each}#p", "containerName": "main", "probe": {"exec": {"command": ["true"]}}}
        for each in in_spec
    ]
    meta = of_pod["metadata"]
    entry = {
        "name": "web-0",
        "namespace": "default",
        "uid": meta["uid"],
        "IP": "",
        "probes": probes,
    }
    wire = npp_wire(
        entries=[entry] if in_spec else [],
        statuses=[pod_status_wire(of_pod, *states)] if states else [],
    )
    del wire["metadata"]["generation"]  # so that specs are compared
    return NODE_POD_PROBES.decode(msgspec.json.encode(wire))


def last_change(*history: NodePodProbe) -> PodResultChange | None:
    """The change that the last of these versions reports on the pod."""
    index = NodePodProbeIndex()
    change = index.update(None, history[0])
    for old, new in pairwise(history):
        change = index.update(old, new)
    return change.pods.get(KEY)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([A_GOOD], [A_BAD], STATE, id="succeeded-to-failed"),
        pytest.param([A_GOOD], [A_UNKNOWN], STATE, id="succeeded-to-unknown"),
        pytest.param([A_GOOD], [A_GOOD_MESSAGE], MESSAGE, id="message-only"),
        pytest.param([A_GOOD], [A_LATER], None, id="newer-time-only"),
        pytest.param([A_GOOD], [A_HASH], MESSAGE, id="equal-result-of-an-edited-handler"),
        pytest.param([], [A_GOOD], FIRST, id="first-result-of-the-pod"),
        pytest.param([A_GOOD], [A_GOOD, B_GOOD], FIRST, id="first-result-of-a-second-probe"),
        pytest.param([A_GOOD, B_GOOD], [A_GOOD], MESSAGE, id="result-gone"),
        pytest.param([A_GOOD], [A_BAD, B_GOOD], STATE, id="state-and-first-result-is-state"),
        pytest.param([A_GOOD, B_GOOD], [B_GOOD, A_BAD], STATE, id="another-order-and-state"),
    ],
)
def test_the_most_important_change_of_a_pod_is_reported(
    before: list[dict[str, object]],
    after: list[dict[str, object]],
    expected: PodResultChange | None,
) -> None:
    assert last_change(report(*before), report(*after)) is expected


def test_a_result_updates_no_markers_of_which_the_node_has_only_the_spec() -> None:
    index = NodePodProbeIndex()
    before, after = report(A_GOOD, in_spec="ab"), report(A_BAD, in_spec="ab")
    assert {each.name for each in index.update(None, before).markers} == {"a", "b"}
    assert {each.name for each in index.update(before, after).markers} == {"a"}


def test_only_markers_whose_results_changed_or_were_removed_are_updated() -> None:
    def statuses(**states: str) -> NodePodProbe:
        found = [
            pod_status_wire(pod_wire(name), state_wire(f"{name}#p", state))
            for name, state in states.items()
        ]
        return NODE_POD_PROBES.decode(msgspec.json.encode(npp_wire(statuses=found)))

    versions = [
        statuses(a="Succeeded", b="Succeeded"),
        statuses(a="Failed", b="Succeeded"),
        statuses(a="Failed"),
    ]
    index = NodePodProbeIndex()
    index.update(None, versions[0])
    updated = [
        {each.name for each in index.update(old, new).markers} for old, new in pairwise(versions)
    ]
    assert updated == [{"a"}, {"b"}]


def test_a_pod_without_results_has_no_change() -> None:
    index = NodePodProbeIndex()
    empty = npp_wire(statuses=[pod_status_wire(pod_wire())])
    assert not index.update(None, NODE_POD_PROBES.decode(msgspec.json.encode(empty))).pods


def test_a_probe_that_was_removed_and_added_reports_a_first_result() -> None:
    """Although its state was always in the status: the daemon wrote removal, return and result at once."""
    removed = report(A_GOOD, in_spec="b")
    back = report(A_GOOD)
    assert last_change(report(A_GOOD), removed, back, report(A_BAD)) is FIRST


def test_after_its_first_result_a_returned_probe_reports_states() -> None:
    history = report(A_GOOD), report(A_GOOD, in_spec=""), report(A_GOOD), report(A_BAD)
    assert last_change(*history, report(A_GOOD)) is STATE


def test_a_removed_probe_does_not_affect_another_one() -> None:
    assert (
        last_change(
            report(A_GOOD, B_GOOD), report(A_GOOD, B_GOOD, in_spec="a"), report(A_BAD, in_spec="a")
        )
        is STATE
    )


def test_a_removed_probe_is_forgotten_with_its_state() -> None:
    index = NodePodProbeIndex()
    versions = report(A_GOOD), report(A_GOOD, in_spec=""), report(in_spec="")
    index.update(None, versions[0])
    for old, new in pairwise(versions):
        index.update(old, new)
    assert index.view("node-1").removed == frozenset()


def test_a_marker_without_entries_uses_no_memory() -> None:
    index = NodePodProbeIndex()
    versions = report(in_spec="ab"), report(in_spec="b")
    index.update(None, versions[0])
    index.update(*versions)
    assert index._nodes_of_marker == {NamespacedName("default", "b"): {"node-1"}}
    gone = index.remove("node-1")
    assert gone == ProbesChange(True, {}, frozenset({NamespacedName("default", "b")}))
    assert (index._nodes_of_marker, index._views) == ({}, {})


HTTP = HTTPGetAction(port=8080, path="/", scheme="HTTP")
COMMAND = {"exec": {"command": ["true"]}}
NAMED_PORT = {"httpGet": {"port": "http"}}


@pytest.mark.parametrize(
    ("handler", "reported", "state", "counts"),
    [
        pytest.param(COMMAND, Probe(exec=ExecAction(("true",))), "Failed", True, id="same"),
        pytest.param(COMMAND, Probe(exec=ExecAction(("test",))), "Failed", False, id="another"),
        pytest.param(COMMAND, Probe(exec=ExecAction(("test",))), "Unknown", True, id="unknown"),
        pytest.param(COMMAND, None, "Failed", True, id="no-hash-of-kruise"),
        pytest.param(NAMED_PORT, Probe(http_get=HTTP), "Succeeded", True, id="port-name"),
        pytest.param(
            NAMED_PORT,
            Probe(http_get=HTTPGetAction(port=8081, path="/", scheme="HTTP")),
            "Succeeded",
            False,
            id="another-number-of-the-port",
        ),
    ],
)
def test_state_of_another_handler_does_not_count(
    handler: dict[str, object], reported: Probe | None, state: str, counts: bool
) -> None:
    index = NodePodProbeIndex()
    hash_ = entry_of(reported).hash if reported else ""
    index.update(None, report(state_wire("a#p", state, probe_hash=hash_), B_GOOD))
    compiled = compile_marker(marker("a", probes=[probe_wire("p", handler=handler)]))
    assert set(index.states_of(POD, (compiled,))) == ({"a#p", "b#p"} if counts else {"b#p"})
    assert set(index.states_of(POD, ())) == {"a#p", "b#p"}


def test_port_name_that_the_container_lacks_is_part_of_the_hash() -> None:
    (probe,) = compile_marker(marker(probes=[probe_wire(handler=NAMED_PORT)])).probes
    unresolved = probe.container_probe.hash
    without_port = pod(containers=[container_wire("main")])
    without_container = pod(containers=[container_wire("other")])
    assert probe.hash_on(without_port) == probe.hash_on(without_container) == unresolved
    assert probe.hash_on(POD) != unresolved
