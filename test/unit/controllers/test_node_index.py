"""Which change of a NodePodProbe is a new state, a first result, or a message."""

from itertools import pairwise

import msgspec
import pytest
from support.builders import npp_wire, pod, pod_status_wire, pod_wire, state_wire

from kruise_probe.api.core import ExecAction, Probe
from kruise_probe.api.handlers import probe_hash
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe
from kruise_probe.controllers.node_index import (
    NodePodProbeIndex,
    PodResultChange,
    ProbesChange,
)

KEY = NamespacedName("default", "web-0")
POD = pod()
MESSAGE, FIRST, STATE = PodResultChange

A_GOOD = state_wire("a#p", "Succeeded")
A_GOOD_MESSAGE = state_wire("a#p", "Succeeded", "more")
A_BAD = state_wire("a#p", "Failed")
A_UNKNOWN = state_wire("a#p", "Unknown")
A_LATER = state_wire("a#p", "Succeeded", probed="2026-01-01T09:00:00Z")
A_OF_TRUE = state_wire("a#p", "Succeeded", probe_hash=probe_hash(Probe(exec=ExecAction(("true",)))))
A_OF_TEST = state_wire("a#p", "Succeeded", probe_hash=probe_hash(Probe(exec=ExecAction(("test",)))))
B_GOOD = state_wire("b#p", "Succeeded")


def report(*states: dict[str, object], in_spec: str = "ab", command: str = "true") -> NodePodProbe:
    """The node's NodePodProbe: the markers whose probe is in the spec, and the published states."""
    of_pod = pod_wire()
    probes = [
        {"name": f"{each}#p", "containerName": "main", "probe": {"exec": {"command": [command]}}}
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
    return change_and_index(*history)[0].pods.get(KEY)


def states_after(*history: NodePodProbe) -> set[str]:
    """The probes whose state counts after these versions."""
    return set(change_and_index(*history)[1].states_of(POD))


def change_and_index(*history: NodePodProbe) -> tuple[ProbesChange, NodePodProbeIndex]:
    index = NodePodProbeIndex()
    change = index.update(None, history[0])
    for old, new in pairwise(history):
        change = index.update(old, new)
    return change, index


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([A_GOOD], [A_BAD], STATE, id="succeeded-to-failed"),
        pytest.param([A_GOOD], [A_UNKNOWN], STATE, id="succeeded-to-unknown"),
        pytest.param([A_GOOD], [A_GOOD_MESSAGE], MESSAGE, id="message-only"),
        pytest.param([A_GOOD], [A_LATER], None, id="newer-time-only"),
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


@pytest.mark.parametrize(
    ("returned", "counts"),
    [
        pytest.param(report(A_OF_TRUE, in_spec="b"), False, id="not-in-the-spec"),
        pytest.param(report(A_OF_TRUE, command="test"), False, id="with-another-command"),
        pytest.param(report(A_OF_TEST, command="test"), True, id="with-its-own-result"),
        pytest.param(report(A_OF_TRUE), True, id="with-the-same-command"),
    ],
)
def test_state_of_removed_probe_does_not_count_for_another_one(
    returned: NodePodProbe, counts: bool
) -> None:
    history = report(A_OF_TRUE), report(A_OF_TRUE, in_spec="b"), returned
    assert states_after(*history) == ({"a#p"} if counts else set())


def test_state_of_removed_probe_without_hash_counts_when_it_returns() -> None:
    """Kruise's daemon reports no hash."""
    removed, returned = report(A_GOOD, in_spec="b"), report(A_GOOD, command="test")
    assert states_after(report(A_GOOD), removed) == set()
    assert states_after(report(A_GOOD), removed, returned) == {"a#p"}


def test_state_of_edited_probe_counts_until_its_next_result() -> None:
    before = report(A_OF_TRUE, B_GOOD)
    assert states_after(before, report(A_OF_TRUE, B_GOOD, command="test")) == {"a#p", "b#p"}
    b_removed = report(A_OF_TRUE, B_GOOD, in_spec="a", command="test")
    assert states_after(before, b_removed) == {"a#p"}


def test_late_state_of_removed_probe_does_not_count() -> None:
    """A write of the daemon that was in flight when the probe left the spec, or of a daemon that missed this."""
    late = {**A_OF_TRUE, "state": "Failed"}
    removed = report(A_OF_TRUE), report(A_OF_TRUE, in_spec="b")
    assert states_after(*removed, report(late, in_spec="b")) == set()
    returned = report(late, command="test")
    assert states_after(*removed, report(late, in_spec="b"), returned) == set()
    assert states_after(*removed, report(A_OF_TRUE, command="test"), returned) == set()
    assert states_after(*removed, returned, report(A_OF_TEST, command="test")) == {"a#p"}


def test_state_that_counts_again_after_an_edit_is_reported() -> None:
    returned = report(A_OF_TRUE, in_spec="b"), report(A_OF_TRUE, command="test")
    assert last_change(report(A_OF_TRUE), *returned) is None
    assert last_change(report(A_OF_TRUE), *returned, report(A_OF_TRUE)) is FIRST


def test_equal_first_result_of_returned_probe_is_reported() -> None:
    """Only its time differs from the state of its predecessor."""
    removed, back = report(A_GOOD, in_spec="b"), report(A_GOOD)
    assert last_change(report(A_GOOD), removed, back) is FIRST  # its state counts again
    assert last_change(report(A_GOOD), removed, back, report(A_LATER)) is FIRST
    assert last_change(report(A_GOOD), removed, back, report(A_GOOD)) is None
    assert last_change(report(A_GOOD), removed, back, report(A_GOOD, in_spec="a")) is None


def test_new_state_is_reported_in_the_event_in_which_another_probe_returns() -> None:
    history = report(A_GOOD, B_GOOD), report(A_GOOD, B_GOOD, in_spec="a")
    assert last_change(*history, report(A_BAD, B_GOOD)) is STATE


def test_a_removed_probe_does_not_affect_another_one() -> None:
    assert (
        last_change(
            report(A_GOOD, B_GOOD), report(A_GOOD, B_GOOD, in_spec="a"), report(A_BAD, in_spec="a")
        )
        is STATE
    )


def test_a_removed_probe_is_forgotten_with_its_state() -> None:
    _, index = change_and_index(report(A_GOOD), report(A_GOOD, in_spec=""), report(in_spec=""))
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
