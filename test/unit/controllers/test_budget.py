"""How the bytes of a NodePodProbe are divided if not everything fits."""

from collections import Counter
from collections.abc import Collection, Iterable
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import marker, pod, probe_wire
from support.computations import at_once

from kruise_probe.api.node_pod_probe import PodProbe
from kruise_probe.controllers.budget import (
    RESERVED_BYTES,
    FittedSpec,
    Group,
    PodPart,
    divide,
    entry_bytes,
    fit_steps,
    pod_probes,
    room_bytes,
)
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.plan import Plan, plan_steps

OLD = compile_marker(marker("old", created="2025-01-01T00:00:00Z"))
NEW = compile_marker(marker("new", probes=[probe_wire("p", condition="c")]))

POD_BYTES = 300
LARGEST = 100


def planned(pods: int, *markers: CompiledMarker) -> Plan:
    of = [pod(f"web-{number}") for number in range(pods)]
    matching = Matching(lambda _: of)
    for each in markers:
        matching.set_marker(each)
    return at_once(plan_steps(of, matching.considered_of, ()))


def fit(*args: Any) -> FittedSpec:
    return at_once(fit_steps(*args))


def object_bytes(entries: Iterable[PodProbe]) -> int:
    return RESERVED_BYTES + sum(map(entry_bytes, entries))


def probed(result: FittedSpec) -> dict[str, list[str]]:
    return {each.name: [probe.name for probe in each.probes] for each in result.entries}


def pods_left_out(result: FittedSpec) -> Counter[str]:
    return Counter(marker for markers in result.no_room.values() for marker in markers)


def test_an_older_marker_is_kept_if_exactly_its_probes_fit() -> None:
    probes = [probe_wire(f"p{number}", condition=f"c{number}") for number in range(32)]
    many = compile_marker(marker("old", created="2025-01-01T00:00:00Z", probes=probes))
    alone = planned(1, many).entries
    result = fit(planned(1, many, NEW).parts, (), object_bytes(alone))
    assert result.entries == alone
    assert pods_left_out(result) == {"new": 1}


def test_a_command_counts_as_it_is_stored() -> None:
    def wanted(letter: str) -> Plan:
        handler = {"exec": {"command": ["sh", "-c", letter * 100]}}
        return planned(2, compile_marker(marker("old", probes=[probe_wire(handler=handler)])))

    plain, escaped = object_bytes(wanted("x").entries), object_bytes(wanted("<").entries)
    assert escaped - plain == 2 * 100 * len("u003c")
    assert pods_left_out(fit(wanted("<").parts, (), plain)) == {"old": 1}


def test_the_newest_marker_is_left_out_first_and_no_more_than_needed() -> None:
    wanted = planned(3, OLD, NEW)
    result = fit(wanted.parts, (), object_bytes(wanted.entries) - 1)
    assert probed(result) == {
        "web-0": ["old#healthy", "new#p"],
        "web-1": ["old#healthy", "new#p"],
        "web-2": ["old#healthy"],
    }
    assert pods_left_out(result) == {"new": 1}


STRANGER = planned(5, compile_marker(marker("stranger"))).entries


def with_ending(parts: Iterable[PodPart]) -> list[PodPart]:
    """The pods, with probes of a marker being deleted."""
    found: list[PodPart] = []
    for part, stranger in zip(parts, STRANGER, strict=True):
        stays = stranger.probes
        entry = PodProbe(
            stranger.name,
            stranger.namespace,
            stranger.uid,
            stranger.ip,
            part.entry.probes + stays,
        )
        found.append(part._replace(entry=entry, fixed=stays))
    return found


@pytest.mark.parametrize("more_bytes", range(-3000, 5000, 500))
@pytest.mark.parametrize("of_other_pods", [False, True])
def test_entries_that_always_stay_reduce_the_bytes_to_divide(
    more_bytes: int, of_other_pods: bool
) -> None:
    """They are of other managers, or of a marker being deleted."""
    parts = planned(5, OLD, NEW).parts
    others: tuple[PodProbe, ...] = STRANGER
    if not of_other_pods:
        parts, others = with_ending(parts), ()
    limit = object_bytes(STRANGER) + more_bytes
    result = fit(parts, others, limit)
    if more_bytes > 0:
        assert object_bytes(result.entries) <= limit
    else:
        assert pods_left_out(result) == {"old": 5, "new": 5}
    stay = [each for each in result.entries if "stranger#healthy" in str(each.probes)]
    assert len(stay) == len(STRANGER)


@pytest.mark.parametrize("more_bytes", range(0, 5000, 250))
def test_what_is_left_out_does_not_fit_beside_what_is_kept(more_bytes: int) -> None:
    """So `explain` needs only the NodePodProbe to find why probes are missing in it."""
    parts = planned(5, OLD, NEW).parts
    limit = RESERVED_BYTES + more_bytes
    result = fit(parts, (), limit)
    kept = {entry.uid: entry for entry in result.entries}
    room = room_bytes(result.entries, limit)
    assert room >= 0
    for part in parts:
        entry = part.entry
        own_bytes = 0 if entry.uid in kept else part.own_bytes
        for group in part.of_template.groups:
            is_left_out = group.marker in result.no_room.get(entry.uid, ())
            assert not is_left_out or own_bytes + group.size_bytes > room


class Wish(NamedTuple):
    """A group of a pod."""

    namespace: str
    uid: str
    marker: str
    order: object
    size_bytes: int


wishes = st.lists(
    st.builds(
        Wish,
        namespace=st.sampled_from("abc"),
        uid=st.sampled_from("123"),
        marker=st.sampled_from("vwxyz"),
        order=st.integers(0, 3),
        size_bytes=st.integers(1, LARGEST),
    ).map(
        lambda each: each._replace(uid=each.namespace + each.uid, order=(each.order, each.marker))
    ),
    unique_by=lambda each: (each.uid, each.marker),
    max_size=30,
)
budgets = st.integers(0, 4000)

Kept = Collection[tuple[str, str]]


def divided(of: Iterable[Wish], budget: int, pod_bytes: int = POD_BYTES) -> Kept:
    parts: list[PodPart] = []
    for uid, mine in by("uid", of).items():
        in_order = sorted(mine, key=lambda each: str(each.order))
        groups = [Group(each.marker, each.order, (), each.size_bytes) for each in in_order]
        entry = PodProbe(uid, mine[0].namespace, uid, "")
        parts.append(PodPart(entry, pod_probes(groups), (), pod_bytes))
    kept = at_once(divide(parts, budget))
    return {(uid, name) for uid, names in kept.items() for name in names}


def size(of: Iterable[Wish], kept: Kept | None = None) -> int:
    """Of the groups, or of those that were kept, with the parts of their pods."""
    total = 0
    pods = set()
    for wish in of:
        if kept is None or (wish.uid, wish.marker) in kept:
            total += wish.size_bytes
            pods.add(wish.uid)
    return total + POD_BYTES * len(pods)


def by(field: str, of: Iterable[Wish]) -> dict[str, list[Wish]]:
    found: dict[str, list[Wish]] = {}
    for each in of:
        found.setdefault(getattr(each, field), []).append(each)
    return found


@given(wishes, budgets)
def test_shares_fill_the_budget_and_no_group_that_fits_is_left_out(
    of: list[Wish], budget: int
) -> None:
    kept = divided(of, budget)
    assert size(of, kept) <= budget
    for each in of:
        if (each.uid, each.marker) not in kept:
            assert size(of, {*kept, (each.uid, each.marker)}) > budget


def test_a_group_of_the_size_of_the_room_that_is_left_is_kept() -> None:
    of = [
        Wish("a", "pod-1", "first", 1, 40),
        Wish("a", "pod-1", "second", 2, 60),
        Wish("a", "pod-2", "large", 3, 200),
        Wish("b", "pod-3", "small", 4, 10),
    ]
    kept = divided(of, 112, pod_bytes=1)
    assert kept == {("pod-1", "first"), ("pod-1", "second"), ("pod-3", "small")}


def test_the_rest_is_given_to_pods_in_turns() -> None:
    """Of four large groups of two pods, two fit into what a third pod cannot use."""
    of = [
        Wish("a", "pod-1", "small", 1, 40),
        Wish("a", "pod-1", "large", 2, 110),
        Wish("a", "pod-1", "another", 3, 110),
        Wish("a", "pod-2", "small", 1, 60),
        Wish("a", "pod-2", "large", 2, 110),
        Wish("a", "pod-2", "another", 3, 110),
        Wish("a", "pod-3", "small", 1, 10),
        Wish("a", "pod-3", "giant", 2, 1000),
    ]
    kept = divided(of, 41 + 61 + 11 + 2 * 110, pod_bytes=1)
    assert {each for each in kept if each[1] != "small"} == {("pod-1", "large"), ("pod-2", "large")}


def assert_has_share(mine: list[Wish], kept: Kept, share: int) -> None:
    """All that fits into the share, or as much as fits within one group."""
    if size(mine) <= share:
        assert size(mine, kept) == size(mine)
    else:
        assert size(mine, kept) > share - LARGEST - POD_BYTES


@given(wishes, budgets)
def test_namespaces_and_their_pods_have_equal_shares(of: list[Wish], budget: int) -> None:
    kept = divided(of, budget)
    namespaces = by("namespace", of)
    for mine in namespaces.values():
        share = budget // len(namespaces)
        assert_has_share(mine, kept, share)
        pods = by("uid", mine)
        for its in pods.values():
            assert_has_share(its, kept, min(size(mine), share) // len(pods))


@given(wishes, budgets, st.randoms())
def test_the_order_of_events_has_no_effect(of: list[Wish], budget: int, random: Random) -> None:
    shuffled = random.sample(of, len(of))
    assert divided(shuffled, budget) == divided(of, budget)


@given(wishes, wishes, budgets)
def test_nothing_within_a_share_is_displaced(
    before: list[Wish], after: list[Wish], budget: int
) -> None:
    """For any requests of the other two namespaces, before and after."""
    mine = [each for each in before if each.namespace == "a"]
    for others in (before, after):
        of = [*mine, *(each for each in others if each.namespace != "a")]
        if size(mine) <= budget // 3:
            assert size(of, divided(of, budget)) >= size(mine)
            assert {(each.uid, each.marker) for each in mine} <= set(divided(of, budget))
