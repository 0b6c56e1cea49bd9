"""What each link of a probe says, also those that are OK: they are what `explain` prints."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.builders import (
    condition_wire,
    node_wire,
    policy_wire,
    probe_wire,
)
from support.cases import cases
from support.snapshots import healthy_pod, marker, seen_pod, snapshot, table
from support.wire import Json

from kruise_probe.api.resources import MARKERS
from kruise_probe.api.times import format_micro_time, format_time
from kruise_probe.inspection.explanation import MAX_UNMATCHED, explanation
from kruise_probe.inspection.link import LinkState
from kruise_probe.inspection.traces import traces_of

TABLE = table("links")


def texts(**there: Any) -> dict[str, str]:
    """The texts of the first probe's links, by their names."""
    return {each.name: each.text for each in links(**there)}


def links(**there: Any) -> list[Any]:
    built = snapshot(**there)
    compiled = next(each for each in built.compiled.values() if each.key.name == "web")
    return list(traces_of(built, built.pods[0], compiled)[0].links)


@cases("there names", **TABLE["names"])
def test_a_working_probe_has_every_link_in_the_order_of_the_data(there: Json, names: str) -> None:
    found = links(**there)

    assert [each.name for each in found] == names.split()
    assert {each.state for each in found} == {LinkState.OK}
    assert not any(each.reason or each.remedy for each in found)


@cases("there link text", **TABLE["texts"])
def test_a_link_that_is_ok_says_what_it_found(there: Json, link: str, text: str) -> None:
    assert texts(**there)[link] == text


STARTED = datetime(2026, 1, 1, tzinfo=UTC)
"""When the container started; by default the marker was created then, too."""


@cases("seconds numbers created state text", **TABLE["expected"])
def test_a_missing_result_is_expected_from_the_numbers_of_the_probe(
    seconds: int, numbers: Json, created: int, state: str, text: str
) -> None:
    at = format_time(STARTED + timedelta(seconds=created))
    last = links(
        states=[],
        markers=[marker(probes=[probe_wire(**numbers)], created=at)],
        now=STARTED + timedelta(seconds=seconds),
        renewed=format_micro_time(STARTED + timedelta(seconds=seconds)),
    )[-1]
    assert last.name == "result"
    assert last.text.endswith(text)
    assert last.state == state


def test_a_result_is_not_expected_at_any_time_of_a_container_without_a_start() -> None:
    running = seen_pod(healthy_pod(), containers={"main": {"running": {}}})
    uncreated = marker()
    uncreated["metadata"]["creationTimestamp"] = None
    last = links(states=[], markers=[uncreated], seen=[running])[-1]
    assert (last.state, last.text) == (LinkState.WAITING, "No result yet")


@cases("kind status shown", **TABLE["said"])
def test_a_missing_entry_has_the_reason_of_the_markers_status(
    kind: str, status: str, shown: bool
) -> None:
    said = condition_wire(kind, status, reason="Whatever", message="etcd is full")
    reported = {"observedGeneration": 1, "conditions": [said]}
    last = links(planned=False, markers=[marker(status=reported)])[-1]

    assert ("the marker's status says: etcd is full" in last.text) == shown


def test_an_entry_of_an_earlier_version_is_behind_and_another_probe_does_not_count() -> None:
    """The entry has a probe of the same marker that is as it should be, and an old one. The node is full for other pods."""
    full = condition_wire("Degraded", "True", reason="NoRoom", message="some nodes are full")
    two = [probe_wire(), probe_wire(name="second", condition="x.com/b")]
    built = snapshot(markers=[marker(probes=two)], full=True)
    newer = marker(
        probes=[probe_wire(), probe_wire(name="second", condition="x.com/b", periodSeconds=77)],
        created="2025-01-01T00:00:00Z",
        status={"observedGeneration": 1, "conditions": [full]},
    )
    changed = snapshot(markers=[newer])
    mixed = replace(changed, node_pod_probes=built.node_pod_probes)
    (compiled,) = mixed.compiled.values()
    first, second = traces_of(mixed, mixed.pods[0], compiled)

    assert first.end is None or first.end.name != "NodePodProbe"
    assert second.end is not None
    assert (second.end.name, second.end.reason) == ("NodePodProbe", "EntryBehind")


# The view of one pod


def view_of(**there: Any) -> Any:
    built = snapshot(**there)
    return explanation(built, built.pods[0], [])


@pytest.mark.parametrize("others", [0, 1, MAX_UNMATCHED, MAX_UNMATCHED + 1])
def test_closest_markers_that_do_not_match_are_listed_up_to_the_limit(others: int) -> None:
    far = [
        marker(name=f"far-{number:02}", selector={"matchLabels": {"tier": "x"}})
        for number in range(others)
    ]
    near = marker(name="zzz", selector={"matchLabels": {"app": "wbe"}})
    view = view_of(markers=[marker(), *far[1:], *([near] if others else [])])

    assert [each.marker for each in view.not_matching[:1]] == (["zzz"] if others else [])
    assert len(view.not_matching) == min(others, MAX_UNMATCHED)
    assert view.more_not_matching == others - len(view.not_matching)
    assert [each.marker for each in view.not_matching if each.remedy] == ["zzz"][:others]


def test_a_marker_that_selects_other_pods_has_no_typing_error() -> None:
    games = marker(name="games", selector={"matchLabels": {"app": "webs"}})
    pods = [healthy_pod(), healthy_pod("b", labels={"app": "webs"})]
    (unmatched,) = view_of(markers=[marker(), games], pods=pods).not_matching
    assert (unmatched.why, unmatched.remedy) == (
        "the selector requires app=webs, but the pod has app=web (did you mean 'web'?)",
        "",
    )


def test_markers_of_other_namespaces_are_listed_if_they_would_select_the_pod() -> None:
    built = snapshot(markers=[])
    selected = snapshot()
    others = [
        marker(name="same-labels", namespace="b"),
        marker(name="same-labels", namespace="a"),
        marker(name="other-labels", namespace="a", selector={"matchLabels": {"tier": "x"}}),
        marker(name="here"),
    ]
    decoded = [MARKERS.decode(msgspec.json.encode(each)) for each in others]

    found = explanation(built, built.pods[0], [], others=decoded)
    assert found.other_namespaces == ["a/same-labels", "b/same-labels"]
    assert explanation(selected, selected.pods[0], [], others=decoded).other_namespaces == []
    assert view_of(markers=[marker(), *others[:2]]).not_matching == []


@cases("status states text", **TABLE["provider"])
def test_marks_of_a_provider_are_those_of_its_condition(
    status: str, states: list[str], text: str
) -> None:
    """Without a policy for Unknown they stay as they are."""
    policies = [policy_wire(each, {"good": "yes"}, {"note": "fine"}) for each in states]
    found = texts(
        markers=[marker(probes=[probe_wire(policies=policies)])],
        pods=[
            healthy_pod(
                labels={"app": "web", "good": "yes"},
                annotations={"kruise.io/podprobe": json.dumps([probe_wire()]), "note": "fine"},
                conditions=[condition_wire("example.com/healthy", status)],
            )
        ],
        node=node_wire(labels={"type": "virtual-kubelet"}),
        renewed=None,
    )
    assert found["marks"] == text
