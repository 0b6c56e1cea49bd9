"""What each link of a probe says, also those that are OK: they are what `explain` prints."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.builders import condition_wire, node_wire, policy_wire, probe_wire
from support.cases import cases
from support.snapshots import healthy_pod, marker, seen_pod, snapshot, table
from support.wire import Json

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.times import format_micro_time, format_time
from kruise_probe.inspection.explanation import MAX_UNMATCHED, ExplanationView, explanation
from kruise_probe.inspection.link import Link, LinkState
from kruise_probe.inspection.traces import traces_of

TABLE = table("links")


def links(**there: Any) -> tuple[Link, ...]:
    """The links of the first probe."""
    built = snapshot(**there)
    compiled = built.compiled[NamespacedName("default", "web")]
    trace, *_ = traces_of(built, built.pods[0], compiled)
    return trace.links


def text_of(name: str, **there: Any) -> str:
    found = links(**there)
    return next(link.text for link in found if link.name == name)


@cases("there names", **TABLE["names"])
def test_a_working_probe_has_every_link_in_the_order_of_the_data(there: Json, names: str) -> None:
    found = links(**there)

    assert [link.name for link in found] == names.split()
    for link in found:
        assert link.state == LinkState.OK
        assert link.reason == ""
        assert link.remedy == ""


@cases("there link text", **TABLE["texts"])
def test_a_link_that_is_ok_says_what_it_found(there: Json, link: str, text: str) -> None:
    assert text_of(link, **there) == text


def reporting(condition: Json, **more: Any) -> Json:
    """A marker with this condition in its status."""
    return marker(status={"observedGeneration": 1, "conditions": [condition]}, **more)


STARTED = datetime(2026, 1, 1, tzinfo=UTC)
"""When the container started; by default the marker was created then, too."""


@cases("seconds numbers created state text", **TABLE["expected"])
def test_a_missing_result_is_expected_from_the_numbers_of_the_probe(
    seconds: int, numbers: Json, created: int, state: str, text: str
) -> None:
    created_at = format_time(STARTED + timedelta(seconds=created))
    now = STARTED + timedelta(seconds=seconds)
    *_, last = links(
        states=[],
        markers=[marker(probes=[probe_wire(**numbers)], created=created_at)],
        now=now,
        renewed=format_micro_time(now),
    )
    assert last.name == "result"
    assert last.text.endswith(text)
    assert last.state == state


def test_a_result_is_not_expected_at_any_time_of_a_container_without_a_start() -> None:
    running = seen_pod(healthy_pod(), containers={"main": {"running": {}}})
    uncreated = marker()
    uncreated["metadata"]["creationTimestamp"] = None
    *_, last = links(states=[], markers=[uncreated], seen=[running])
    assert last.state == LinkState.WAITING
    assert last.text == "No result yet"


@cases("kind status shown", **TABLE["said"])
def test_a_missing_entry_has_the_reason_of_the_markers_status(
    kind: str, status: str, shown: bool
) -> None:
    said = condition_wire(kind, status, reason="Whatever", message="etcd is full")
    *_, last = links(planned=False, markers=[reporting(said)])

    assert ("the marker's status says: etcd is full" in last.text) == shown


def test_an_entry_of_an_earlier_version_is_behind_and_another_probe_does_not_count() -> None:
    """The entry has two probes of the marker: one is current, one is old. The node is full for other pods."""
    full = condition_wire("Degraded", "True", reason="NoRoom", message="some nodes are full")
    old = probe_wire("second", condition="x.com/b")
    older = marker(probes=[probe_wire(), old])
    before = snapshot(markers=[older], full=True)
    new = probe_wire("second", condition="x.com/b", periodSeconds=77)
    newer = reporting(full, probes=[probe_wire(), new], created="2025-01-01T00:00:00Z")
    after = snapshot(markers=[newer])
    mixed = replace(after, node_pod_probes=before.node_pod_probes)
    (compiled,) = mixed.compiled.values()

    first, second = traces_of(mixed, mixed.pods[0], compiled)

    assert first.end is None or first.end.name != "NodePodProbe"
    assert second.end is not None
    assert second.end.name == "NodePodProbe"
    assert second.end.reason == "EntryBehind"


# The view of one pod


def view_of(**there: Any) -> ExplanationView:
    built = snapshot(**there)
    return explanation(built, built.pods[0], [])


def marker_of(labels: Json, **more: Any) -> Json:
    """A marker of the pods with these labels."""
    return marker(selector={"matchLabels": labels}, **more)


@pytest.mark.parametrize("others", [0, 1, MAX_UNMATCHED, MAX_UNMATCHED + 1])
def test_closest_markers_that_do_not_match_are_listed_up_to_the_limit(others: int) -> None:
    far = [marker_of({"tier": "x"}, name=f"far-{number}") for number in range(1, others)]
    near = [marker_of({"app": "wbe"}, name="zzz")]

    view = view_of(markers=[marker(), *far, *near[:others]])

    shown = view.not_matching
    assert len(shown) == min(others, MAX_UNMATCHED)
    assert view.more_not_matching == others - len(shown)
    closest = ["zzz"][:others]
    assert [unmatched.marker for unmatched in shown[:1]] == closest
    assert [unmatched.marker for unmatched in shown if unmatched.remedy] == closest


def test_a_marker_that_selects_other_pods_has_no_typing_error() -> None:
    games = marker_of({"app": "webs"}, name="games")
    pods = [healthy_pod(), healthy_pod("b", labels={"app": "webs"})]
    (unmatched,) = view_of(markers=[marker(), games], pods=pods).not_matching
    assert unmatched.why == (
        "the selector requires app=webs, but the pod has app=web (did you mean 'web'?)"
    )
    assert unmatched.remedy == ""


def test_markers_of_other_namespaces_are_listed_if_they_would_select_the_pod() -> None:
    others = [
        marker(name="same-labels", namespace="b"),
        marker(name="same-labels", namespace="a"),
        marker_of({"tier": "x"}, name="other-labels", namespace="a"),
        marker(name="here"),
    ]
    decoded = snapshot(markers=others).markers
    unselected = snapshot(markers=[])
    selected = snapshot()

    found = explanation(unselected, unselected.pods[0], [], others=decoded)
    assert found.other_namespaces == ["a/same-labels", "b/same-labels"]
    found = explanation(selected, selected.pods[0], [], others=decoded)
    assert found.other_namespaces == []
    view = view_of(markers=[marker(), *others[:2]])
    assert view.not_matching == []


@cases("status states text", **TABLE["provider"])
def test_marks_of_a_provider_are_those_of_its_condition(
    status: str, states: list[str], text: str
) -> None:
    """Without a policy for Unknown the marks stay."""
    policies = [policy_wire(state, {"good": "yes"}, {"note": "fine"}) for state in states]
    pod = healthy_pod(
        labels={"app": "web", "good": "yes"},
        annotations={"kruise.io/podprobe": json.dumps([probe_wire()]), "note": "fine"},
        conditions=[condition_wire("example.com/healthy", status)],
    )
    found = text_of(
        "marks",
        markers=[marker(probes=[probe_wire(policies=policies)])],
        pods=[pod],
        node=node_wire(labels={"type": "virtual-kubelet"}),
        renewed=None,
    )
    assert found == text
