"""Probes that a limit leaves out are Unknown on their pods until there is room. The whole product over a fake API."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import pod_status_wire, policy_wire, probe_wire, state_wire
from support.cases import cases
from support.metrics import metric
from support.running_manager import settle
from support.scene import Scene
from support.wire import Json
from unit.controllers.common import (
    FALSE,
    TRUE,
    WITHOUT_FINALIZERS,
    Condition,
    compiled,
    event_reasons,
    marker_condition,
    marker_message,
    marker_reason,
    no_writes,
    numbered_probes,
    put_pod,
    stamp,
)

from kruise_probe.api.names import ProbeName
from kruise_probe.api.resources import MARKERS, PODS
from kruise_probe.api.v1alpha1 import KEYS_PER_POD, MARKERS_PER_POD, PROBES_PER_POD
from kruise_probe.controllers.limits import select

WEB = {f"web-{number:02}" for number in range(20)}
KEPT = 16
NO_ROOM = ("Unknown", "NoRoom")


def large_probe(size: int, **more: Any) -> Json:
    return probe_wire(handler={"httpGet": {"port": 80, "path": "/" + "x" * size}}, **more)


@pytest.fixture
def crowded() -> Scene:
    """One node, and more pods of 60 KB each than its NodePodProbe has room for."""
    api = Scene()
    api.put_node("node-1", *sorted(WEB))
    api.put_marker(
        large_probe(
            60_000,
            policies=[policy_wire("Succeeded", {"healthy": "true"})],
        )
    )
    return api


async def report_all(api: Scene, names: Iterable[str], state: str = "Succeeded") -> None:
    """The daemon publishes a result of these pods."""
    result = state_wire(state=state)
    api.publish(*(pod_status_wire(api.read(PODS, name), result) for name in sorted(names)))
    await settle()


def conditions_of(api: Scene, names: Iterable[str]) -> set[Condition]:
    return {api.condition(pod=name) for name in names}


def left_out(reason: str) -> float:
    return metric("kruise_probe_probes_left_out", reason=reason)


async def test_only_pods_without_room_become_unknown_also_after_a_restart(crowded: Scene) -> None:
    async with crowded.running():
        kept = set(crowded.probes())
        await report_all(crowded, kept)
        assert len(kept) == KEPT
        assert conditions_of(crowded, kept) == {TRUE}
        assert conditions_of(crowded, WEB - kept) == {NO_ROOM}
        assert left_out("NoRoom") == len(WEB) - KEPT
        assert marker_reason(crowded) == "NoRoom"
        assert marker_message(crowded).startswith("4 of 20 pods are not probed")
        with no_writes(crowded, "Pod"):
            await settle(700)
    await report_all(crowded, WEB)
    with no_writes(crowded, "Pod"):
        await crowded.run()
    assert conditions_of(crowded, WEB - kept) == {NO_ROOM}


async def test_a_displaced_probe_becomes_unknown_and_keeps_its_marks(crowded: Scene) -> None:
    for name in sorted(WEB)[KEPT:]:
        crowded.remove(PODS, name)
    async with crowded.running():
        await report_all(crowded, crowded.probes())
        crowded.put_marker(
            large_probe(60_000),
            name="other",
            namespace="tenant",
        )
        for number in range(KEPT):
            put_pod(crowded, f"x-{number:02}", namespace="tenant")
        await settle()
        probed = crowded.probes()
        displaced = set(sorted(WEB)[:KEPT]) - set(probed)
        assert len(probed) == KEPT
        assert len(displaced) == KEPT // 2
        assert conditions_of(crowded, displaced) == {NO_ROOM}
        for name in displaced:
            assert crowded.labels(name) == {"healthy": "true"}


async def test_with_room_again_the_real_state_is_written(crowded: Scene) -> None:
    async with crowded.running():
        await report_all(crowded, crowded.probes())
        gone = sorted(crowded.probes())[: len(WEB) - KEPT]
        for name in gone:
            crowded.remove(PODS, name)
        await settle()
        await report_all(crowded, crowded.probes(), "Failed")
        assert conditions_of(crowded, WEB.difference(gone)) == {FALSE}
        assert left_out("NoRoom") == 0
        assert crowded.says()[0] == "False"


async def test_an_edit_over_the_limit_of_an_entry_is_reported(api: Scene) -> None:
    api.put_marker(large_probe(60_000))
    async with api.running(state_wire()):
        await api.change_probes(large_probe(66_000))
        assert api.probes() == {}
        assert api.condition()[0] == "Unknown"
        await api.report(state_wire())
        await api.change_probes(large_probe(60_000))
        assert set(api.probes()) == {"web-0"}
        assert api.condition()[0] == "True"
        await api.report(state_wire())
        assert event_reasons(api) == ["EntryTooLarge"]


async def test_a_marker_over_the_limit_reports_it_and_follows_when_one_is_deleted(
    api: Scene,
) -> None:
    api.remove(MARKERS, "web")
    first_over = MARKERS_PER_POD
    last = first_over + 1
    for number in range(last + 1):
        probe = probe_wire("p", condition=f"c/{number}")
        api.put_marker(
            probe,
            name=f"m{number}",
            created=stamp(number),
        )
    async with api.running():
        assert api.condition(f"c/{last}") == ("Unknown", "TooManyMarkers")
        assert f"c/{first_over - 1}" not in api.conditions()
        assert marker_reason(api, marker=f"m{last}") == "TooManyMarkers"
        assert marker_message(api, marker=f"m{last}").startswith("1 of 1 pods are not probed")
        assert event_reasons(api) == ["TooManyMarkers"] * 2
        assert left_out("TooManyMarkers") == 2

        api.edit(MARKERS, "m0", WITHOUT_FINALIZERS)
        await api.drop(MARKERS, "m0")
        assert left_out("TooManyMarkers") == 1
        await api.report(state_wire(f"m{first_over}#p"))
        assert api.condition(f"c/{first_over}") == TRUE
        assert api.condition(f"c/{last}") == ("Unknown", "TooManyMarkers")


@cases(
    "gated",
    not_initialised={"initialized": False},
    no_node={"node": ""},
    finished={"phase": "Succeeded"},
)
async def test_a_pod_that_is_not_probed_is_not_left_out(api: Scene, gated: Json) -> None:
    put_pod(api, **gated)
    api.put_marker(large_probe(66_000))
    await api.run()
    assert api.conditions() == {}


def labelling_probes(marker: str, count: int, labels: int) -> list[Json]:
    """Probes with a condition each; the first one has labels."""
    probes = numbered_probes(count, f"{marker}/")
    if labels:
        keys = {f"{marker}/{number}": "yes" for number in range(labels)}
        probes[0]["markerPolicy"] = [policy_wire("Succeeded", keys)]
    return probes


@cases(
    "sizes left_out reason",
    probes=([(32, 1)] * 5, "m4", "TooManyProbes"),
    keys=([(1, 90)] * 12, "m11", "TooManyKeys"),
    keys_of_one_marker=([(1, 100), (1, 101)], "m1", "TooManyKeys"),
    a_smaller_younger_marker=(
        [(32, 0), (32, 0), (32, 0), (30, 0), (3, 0), (2, 1)],
        "m4",
        "TooManyProbes",
    ),
)
async def test_a_marker_that_does_not_fit_beside_the_older_ones_is_left_out_whole(
    api: Scene,
    sizes: list[tuple[int, int]],
    left_out: str,
    reason: str,
) -> None:
    api.remove(MARKERS, "web")
    names = [f"m{number}" for number in range(len(sizes))]
    results: list[Json] = []
    for number, (count, labels) in enumerate(sizes):
        name = names[number]
        probes = labelling_probes(name, count, labels)
        api.put_marker(
            *probes,
            name=name,
            created=stamp(number),
        )
        results += [state_wire(f"{name}#{probe['name']}") for probe in probes]
    async with api.running(*results):
        probed = {ProbeName.parse(name).marker for name in api.probes()["web-0"]}
        assert probed == {*names} - {left_out}
        assert left_out not in {key.partition("/")[0] for key in api.labels()}
        assert api.condition(f"{left_out}/0") == ("Unknown", reason)
        assert marker_condition(api, marker=left_out) == ("True", reason)
        assert api.condition("m0/0") == TRUE


async def test_an_edit_over_the_limit_of_keys_removes_the_labels(api: Scene) -> None:
    probes = labelling_probes("web", 1, labels=2)
    result = state_wire("web#p0")
    written = {"web/0": "yes", "web/1": "yes"}
    api.put_marker(*probes)
    async with api.running(result):
        assert api.labels() == written
        await api.change_probes(*labelling_probes("web", 1, labels=101))
        assert api.labels() == {}
        assert api.probes() == {}
        assert api.condition("web/0") == ("Unknown", "TooManyKeys")
        await api.change_probes(*probes)
        await api.report(result)
        assert api.labels() == written


@given(
    st.lists(st.tuples(st.integers(0, 32), st.integers(0, 100)), max_size=70),
    st.integers(0, 70),
)
def test_a_younger_marker_never_changes_which_older_ones_are_considered(
    sizes: list[tuple[int, int]],
    count: int,
) -> None:
    template = compiled(probe_wire())
    markers = []
    for number, (probes, keys) in enumerate(sizes):
        marker = structs.replace(
            template,
            order=(f"{number:03}", template.key),
            probes=template.probes * probes,
            keys=keys,
            serial=number,
        )
        markers.append(marker)
    selection = select(tuple(reversed(markers)))
    considered = selection.considered
    assert sum(len(marker.probes) for marker in considered) <= PROBES_PER_POD
    assert sum(marker.keys for marker in considered) <= KEYS_PER_POD
    assert len(considered) <= MARKERS_PER_POD
    assert {*considered} | {*selection.left_out} == {*markers}
    older = select(tuple(markers[:count])).considered
    assert considered[: len(older)] == older
