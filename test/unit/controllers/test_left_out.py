"""Probes that a limit leaves out are Unknown on their pods until there is room. The whole product over a fake API."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import marker, pod_status_wire, pod_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.metrics import metric
from support.running_manager import settle
from support.scene import Scene
from support.wire import Json

from kruise_probe.api.names import ProbeName
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.api.v1alpha1 import KEYS_PER_POD, MARKERS_PER_POD, PROBES_PER_POD
from kruise_probe.controllers.compiled import compile_marker
from kruise_probe.controllers.limits import select

WEB = {f"web-{number:02}" for number in range(20)}
KEPT = 16
MOST_PROBES = 32
"""Of a marker."""
NO_ROOM = ("Unknown", "NoRoom")


def large_probe(size: int, **more: Any) -> Json:
    return probe_wire(handler={"httpGet": {"port": 80, "path": "/" + "x" * size}}, **more)


@pytest.fixture
def crowded() -> Scene:
    """One node, and more pods of 60 KB each than its NodePodProbe has room for."""
    api = Scene()
    api.put_node("node-1", *sorted(WEB))
    api.put_marker(large_probe(60_000, policies=[policy_wire("Succeeded", {"healthy": "true"})]))
    return api


async def report_all(api: Scene, names: Iterable[str], state: str = "Succeeded") -> None:
    """The daemon publishes a result of these pods."""
    statuses = []
    for name in sorted(names):
        pod = api.read(PODS, name)
        status = pod_status_wire(pod, state_wire(state=state))
        statuses.append(status)
    api.publish(*statuses)
    await settle()


def left_out(reason: str) -> float:
    return metric("kruise_probe_probes_left_out", reason=reason)


async def test_only_pods_without_room_become_unknown_also_after_a_restart(crowded: Scene) -> None:
    async with crowded.running():
        kept = set(crowded.probes())
        await report_all(crowded, kept)
        assert len(kept) == KEPT
        assert {crowded.condition(pod=name) for name in kept} == {("True", "")}
        assert {crowded.condition(pod=name) for name in WEB - kept} == {NO_ROOM}
        assert left_out("NoRoom") == len(WEB) - KEPT
        assert crowded.says()[1] == "NoRoom"
        assert crowded.says()[2].startswith("4 of 20 pods are not probed")
        writes = len(crowded.writes)
        await settle(700)
        assert crowded.count("Pod", since=writes) == {}
    await report_all(crowded, WEB)
    async with crowded.running():
        assert crowded.count("Pod", since=writes) == {}
        assert {crowded.condition(pod=name) for name in WEB - kept} == {NO_ROOM}


async def test_a_displaced_probe_becomes_unknown_and_keeps_its_marks(crowded: Scene) -> None:
    for name in sorted(WEB)[KEPT:]:
        crowded.remove(PODS, name)
    async with crowded.running():
        await report_all(crowded, crowded.probes())
        crowded.put_marker(large_probe(60_000), name="other", namespace="tenant")
        for number in range(KEPT):
            crowded.put(PODS, pod_wire(f"x-{number:02}", namespace="tenant"))
        await settle()
        displaced = set(sorted(WEB)[:KEPT]) - set(crowded.probes())
        assert (len(crowded.probes()), len(displaced)) == (KEPT, KEPT // 2)
        for name in displaced:
            assert crowded.labels(name) == {"healthy": "true"}
            assert crowded.condition(pod=name) == NO_ROOM


async def test_with_room_again_the_real_state_is_written(crowded: Scene) -> None:
    async with crowded.running():
        await report_all(crowded, crowded.probes())
        gone = sorted(crowded.probes())[: len(WEB) - KEPT]
        for name in gone:
            crowded.remove(PODS, name)
        await settle()
        await report_all(crowded, crowded.probes(), "Failed")
        assert {crowded.condition(pod=name) for name in WEB - {*gone}} == {("False", "")}
        assert left_out("NoRoom") == 0
        assert crowded.says()[0] == "False"


async def test_an_edit_over_the_limit_of_an_entry_is_reported(api: Scene) -> None:
    api.put_marker(large_probe(60_000))
    async with api.running(state_wire()):
        for size, probed, shown in ((66_000, set(), "Unknown"), (60_000, {"web-0"}, "True")):
            await api.change_probes(large_probe(size))
            assert (set(api.probes()), api.condition()[0]) == (probed, shown)
            await api.report(state_wire())
        assert [each.reason for each in api.events] == ["EntryTooLarge"]


async def test_a_marker_over_the_limit_reports_it_and_follows_when_one_is_deleted(
    api: Scene,
) -> None:
    api.remove(MARKERS, "web")
    for number in range(MARKERS_PER_POD + 2):
        created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        api.put_marker(probe_wire("p", condition=f"c/{number}"), name=f"m{number}", created=created)
    async with api.running():
        last = MARKERS_PER_POD + 1
        assert api.condition(f"c/{last}") == ("Unknown", "TooManyMarkers")
        assert f"c/{MARKERS_PER_POD - 1}" not in api.conditions()
        assert api.says(marker=f"m{last}")[1] == "TooManyMarkers"
        assert api.says(marker=f"m{last}")[2].startswith("1 of 1 pods are not probed")
        assert [each.reason for each in api.events] == ["TooManyMarkers"] * 2
        assert left_out("TooManyMarkers") == 2

        api.edit(MARKERS, "m0", {"metadata": {"finalizers": None}})
        await api.drop(MARKERS, "m0")
        assert left_out("TooManyMarkers") == 1
        await api.report(state_wire(f"m{MARKERS_PER_POD}#p"))
        assert api.condition(f"c/{MARKERS_PER_POD}") == ("True", "")
        assert api.condition(f"c/{last}") == ("Unknown", "TooManyMarkers")


@cases(
    "gated",
    not_initialised={"initialized": False},
    no_node={"node": ""},
    finished={"phase": "Succeeded"},
)
async def test_a_pod_that_is_not_probed_is_not_left_out(api: Scene, gated: Json) -> None:
    api.put(PODS, pod_wire(**gated))
    api.put_marker(large_probe(66_000))
    await api.run()
    assert api.conditions() == {}


def numbered_probes(marker: str, count: int, labels: int) -> list[Json]:
    """Probes with a condition each; the first one has labels."""
    probes = [probe_wire(f"p{number}", condition=f"{marker}/{number}") for number in range(count)]
    if labels:
        keys = {f"{marker}/{number}": "yes" for number in range(labels)}
        policies = [policy_wire("Succeeded", keys)]
        probes[0] = probe_wire("p0", condition=f"{marker}/0", policies=policies)
    return probes


@cases(
    "sizes left_out reason",
    probes=([(32, 1)] * 5, {"m4"}, "TooManyProbes"),
    keys=([(1, 90)] * 12, {"m11"}, "TooManyKeys"),
    keys_of_one_marker=([(1, 100), (1, 101)], {"m1"}, "TooManyKeys"),
    a_smaller_younger_marker=([(32, 0)] * 3 + [(30, 0), (3, 0), (2, 1)], {"m4"}, "TooManyProbes"),
)
async def test_a_marker_that_does_not_fit_beside_the_older_ones_is_left_out_whole(
    api: Scene, sizes: list[tuple[int, int]], left_out: set[str], reason: str
) -> None:
    api.remove(MARKERS, "web")
    names = [f"m{number}" for number in range(len(sizes))]
    results: list[Json] = []
    for name, (count, labels) in zip(names, sizes, strict=True):
        created = f"2026-01-01T00:00:{names.index(name):02}Z"
        api.put_marker(*numbered_probes(name, count, labels), name=name, created=created)
        results += [state_wire(f"{name}#p{number}") for number in range(count)]
    async with api.running(*results):
        probed = {ProbeName.parse(each).marker for each in api.probes()["web-0"]}
        assert probed == {*names} - left_out
        labelled = {key.partition("/")[0] for key in api.labels()}
        assert labelled.isdisjoint(left_out)
        for name in left_out:
            assert api.condition(f"{name}/0") == ("Unknown", reason)
            assert api.says(marker=name)[:2] == ("True", reason)
        assert api.condition("m0/0") == ("True", "")


async def test_an_edit_over_the_limit_of_keys_removes_the_labels(api: Scene) -> None:
    probes = numbered_probes("web", 1, labels=2)
    api.put_marker(*probes)
    async with api.running(state_wire("web#p0")):
        assert api.labels() == {"web/0": "yes", "web/1": "yes"}
        await api.change_probes(*numbered_probes("web", 1, labels=101))
        assert (api.labels(), api.probes()) == ({}, {})
        assert api.condition("web/0") == ("Unknown", "TooManyKeys")
        await api.change_probes(*probes)
        await api.report(state_wire("web#p0"))
        assert api.labels() == {"web/0": "yes", "web/1": "yes"}


@given(
    st.lists(st.tuples(st.integers(0, 32), st.integers(0, 100)), max_size=70),
    st.integers(0, 70),
)
def test_a_younger_marker_never_changes_which_older_ones_are_considered(
    sizes: list[tuple[int, int]], count: int
) -> None:
    template = compile_marker(marker())
    markers = [
        structs.replace(
            template,
            order=(f"{number:03}", template.key),
            probes=template.probes * probes,
            keys=keys,
            serial=number,
        )
        for number, (probes, keys) in enumerate(sizes)
    ]
    selection = select(tuple(reversed(markers)))
    considered = selection.considered
    assert sum(len(each.probes) for each in considered) <= PROBES_PER_POD
    assert sum(each.keys for each in considered) <= KEYS_PER_POD
    assert len(considered) <= MARKERS_PER_POD
    assert {*considered} | {*selection.left_out} == {*markers}
    older = select(tuple(markers[:count])).considered
    assert considered[: len(older)] == older
