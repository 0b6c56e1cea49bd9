"""Which news of a NodePodProbe is a new state, a first result, or a message."""

from itertools import pairwise

import msgspec
import pytest
from support.builders import npp_wire, pod_status_wire, pod_wire, state_wire
from support.fake_api import FakeApi
from support.running_manager import START, informers_over

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.api.v1alpha1 import NodePodProbe
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.result_changes import ResultChange

KEY = NamespacedName("default", "web-0")
MESSAGE, FIRST, STATE = ResultChange

A_GOOD = state_wire("a#p", "Succeeded")
A_GOOD_SAYS = state_wire("a#p", "Succeeded", "more")
A_BAD = state_wire("a#p", "Failed")
A_UNKNOWN = state_wire("a#p", "Unknown")
A_LATER = state_wire("a#p", "Succeeded", probed="2026-01-01T09:00:00Z")
B_GOOD = state_wire("b#p", "Succeeded")


def report(*states: dict[str, object], asked: str = "ab") -> NodePodProbe:
    """The node's NodePodProbe: the markers whose probe is in the spec, and the published states."""
    pod = pod_wire()
    probes = [
        {"name": f"{each}#p", "containerName": "main", "probe": {"exec": {"command": ["true"]}}}
        for each in asked
    ]
    meta = pod["metadata"]
    entry = {
        "name": "web-0",
        "namespace": "default",
        "uid": meta["uid"],
        "IP": "",
        "probes": probes,
    }
    wire = npp_wire(
        entries=[entry] if asked else [],
        statuses=[pod_status_wire(pod, *states)] if states else [],
    )
    del wire["metadata"]["generation"]  # so that specs are compared
    return NODE_POD_PROBES.decode(msgspec.json.encode(wire))


def last_change(*history: NodePodProbe) -> ResultChange | None:
    """What the last of these versions reports on the pod."""
    caches = Caches(informers_over(FakeApi()), now=lambda: START)
    change = caches.follow_node_pod_probe(None, history[0])
    for old, new in pairwise(history):
        change = caches.follow_node_pod_probe(old, new)
    return change.pods.get(KEY)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([A_GOOD], [A_BAD], STATE, id="succeeded-to-failed"),
        pytest.param([A_GOOD], [A_UNKNOWN], STATE, id="succeeded-to-unknown"),
        pytest.param([A_GOOD], [A_GOOD_SAYS], MESSAGE, id="message-only"),
        pytest.param([A_GOOD], [A_LATER], None, id="newer-time-only"),
        pytest.param([], [A_GOOD], FIRST, id="first-result-of-the-pod"),
        pytest.param([A_GOOD], [A_GOOD, B_GOOD], FIRST, id="first-result-of-a-second-probe"),
        pytest.param([A_GOOD, B_GOOD], [A_GOOD], MESSAGE, id="result-gone"),
        pytest.param([A_GOOD], [A_BAD, B_GOOD], STATE, id="state-and-first-result-is-state"),
        pytest.param([A_GOOD, B_GOOD], [B_GOOD, A_BAD], STATE, id="another-order-and-state"),
    ],
)
def test_the_most_important_change_of_a_pod_counts(
    before: list[dict[str, object]],
    after: list[dict[str, object]],
    expected: ResultChange | None,
) -> None:
    assert last_change(report(*before), report(*after)) is expected


def test_a_probe_that_left_and_came_back_reports_a_first_result_not_a_state() -> None:
    """Although its state never left the status: the daemon wrote leaving, return and result at once."""
    away = report(A_GOOD, asked="b")
    back = report(A_GOOD)
    assert last_change(report(A_GOOD), away, back, report(A_BAD)) is FIRST


def test_the_state_after_a_returned_probes_first_result_is_a_state_again() -> None:
    history = report(A_GOOD), report(A_GOOD, asked=""), report(A_GOOD), report(A_BAD)
    assert last_change(*history, report(A_GOOD)) is STATE


def test_a_probe_that_stays_is_not_concerned_by_one_that_leaves() -> None:
    assert (
        last_change(
            report(A_GOOD, B_GOOD), report(A_GOOD, B_GOOD, asked="a"), report(A_BAD, asked="a")
        )
        is STATE
    )


def test_nothing_is_remembered_of_a_probe_whose_state_is_gone() -> None:
    caches = Caches(informers_over(FakeApi()), now=lambda: START)
    versions = report(A_GOOD), report(A_GOOD, asked=""), report(asked="")
    caches.follow_node_pod_probe(None, versions[0])
    for old, new in pairwise(versions):
        caches.follow_node_pod_probe(old, new)
    assert caches.view("node-1").left == frozenset()
