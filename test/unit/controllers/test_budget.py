"""How the bytes of a NodePodProbe are divided if not everything fits."""

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.builders import marker, pod, probe_wire
from support.computations import at_once
from unit.controllers.common import compiled, numbered_probes

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

OLDER = "2025-01-01T00:00:00Z"
OLD = compile_marker(marker("old", created=OLDER))
NEW = compiled(
    probe_wire("p", condition="c"),
    name="new",
)

POD_BYTES = 300
LARGEST = 100


def planned(pods: int, *markers: CompiledMarker) -> Plan:
    of = [pod(f"web-{number}") for number in range(pods)]
    matching = Matching(lambda _: of)
    for compiled_marker in markers:
        matching.set_marker(compiled_marker)
    return at_once(plan_steps(of, matching.considered_of, ()))


def fit(*args: Any) -> FittedSpec:
    return at_once(fit_steps(*args))


def object_bytes(entries: Iterable[PodProbe]) -> int:
    return RESERVED_BYTES + sum(map(entry_bytes, entries))


def pods_left_out(result: FittedSpec) -> Counter[str]:
    return Counter(chain.from_iterable(result.no_room.values()))


def test_an_older_marker_is_kept_if_exactly_its_probes_fit() -> None:
    many = compiled(
        *numbered_probes(32),
        name="old",
        created=OLDER,
    )
    alone = planned(1, many).entries
    result = fit(
        planned(1, many, NEW).parts,
        (),
        object_bytes(alone),
    )
    assert result.entries == alone
    assert pods_left_out(result) == {"new": 1}


def test_a_command_counts_as_it_is_stored() -> None:
    def wanted(letter: str) -> Plan:
        handler = {"exec": {"command": ["sh", "-c", letter * 100]}}
        return planned(2, compiled(probe_wire(handler=handler), name="old"))

    plain = object_bytes(wanted("x").entries)
    escaped = object_bytes(wanted("<").entries)
    assert escaped - plain == 2 * 100 * len("u003c")
    assert pods_left_out(fit(wanted("<").parts, (), plain)) == {"old": 1}


def test_the_newest_marker_is_left_out_first_and_no_more_than_needed() -> None:
    wanted = planned(3, OLD, NEW)
    result = fit(
        wanted.parts,
        (),
        object_bytes(wanted.entries) - 1,
    )
    probed = {}
    for entry in result.entries:
        probed[entry.name] = [probe.name for probe in entry.probes]
    assert probed == {
        "web-0": ["old#healthy", "new#p"],
        "web-1": ["old#healthy", "new#p"],
        "web-2": ["old#healthy"],
    }
    assert pods_left_out(result) == {"new": 1}


STRANGER = planned(5, compile_marker(marker("stranger"))).entries


@pytest.mark.parametrize("more_bytes", range(-3000, 5000, 500))
@pytest.mark.parametrize("of_other_pods", [False, True])
def test_entries_that_always_stay_reduce_the_bytes_to_divide(
    more_bytes: int,
    of_other_pods: bool,
) -> None:
    """They are of other managers, or of a marker being deleted."""
    parts = [*planned(5, OLD, NEW).parts]
    others = STRANGER
    if not of_other_pods:
        others = ()
        for number, stranger in enumerate(STRANGER):
            part = parts[number]
            probes = part.entry.probes + stranger.probes
            entry = structs.replace(part.entry, probes=probes)
            parts[number] = part._replace(entry=entry, fixed=stranger.probes)
    limit = object_bytes(STRANGER) + more_bytes
    result = fit(parts, others, limit)
    if more_bytes > 0:
        assert object_bytes(result.entries) <= limit
    else:
        assert pods_left_out(result) == {"old": 5, "new": 5}
    stay = [entry for entry in result.entries if "stranger#healthy" in str(entry.probes)]
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
    """A group of a pod. The first letter of its uid is the namespace."""

    uid: str
    order: int
    marker: str
    size_bytes: int

    @property
    def namespace(self) -> str:
        return self.uid[0]

    @property
    def key(self) -> tuple[str, str]:
        return self.uid, self.marker


Wishes = list[Wish]
wishes = st.lists(
    st.builds(
        Wish,
        uid=st.sampled_from(["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"]),
        order=st.integers(0, 3),
        marker=st.sampled_from("vwxyz"),
        size_bytes=st.integers(1, LARGEST),
    ),
    unique_by=lambda wish: wish.key,
    max_size=30,
)
budgets = st.integers(0, 4000)

Kept = Collection[tuple[str, str]]


def divided(of: Iterable[Wish], budget: int, pod_bytes: int = POD_BYTES) -> Kept:
    parts: list[PodPart] = []
    for uid, mine in by("uid", of).items():
        groups = []
        for wish in sorted(mine):
            order = (wish.order, wish.marker)
            groups.append(
                Group(
                    wish.marker,
                    order,
                    (),
                    wish.size_bytes,
                )
            )
        entry = PodProbe(
            uid,
            mine[0].namespace,
            uid,
            "",
        )
        parts.append(
            PodPart(
                entry,
                pod_probes(groups),
                (),
                pod_bytes,
            )
        )
    kept: set[tuple[str, str]] = set()
    for uid, markers in at_once(divide(parts, budget)).items():
        kept |= {(uid, name) for name in markers}
    return kept


def size(of: Iterable[Wish], kept: Kept | None = None) -> int:
    """Of the groups, or of those that were kept, with the parts of their pods."""
    total = 0
    pods = set()
    for wish in of:
        if kept is None or wish.key in kept:
            total += wish.size_bytes
            pods.add(wish.uid)
    return total + POD_BYTES * len(pods)


def by(field: str, of: Iterable[Wish]) -> dict[str, Wishes]:
    found: dict[str, Wishes] = {}
    for wish in of:
        found.setdefault(getattr(wish, field), []).append(wish)
    return found


@given(wishes, budgets)
def test_shares_fill_the_budget_and_no_group_that_fits_is_left_out(
    of: Wishes,
    budget: int,
) -> None:
    kept = divided(of, budget)
    assert size(of, kept) <= budget
    for wish in of:
        if wish.key not in kept:
            assert size(of, {*kept, wish.key}) > budget


def test_a_group_of_the_size_of_the_room_that_is_left_is_kept() -> None:
    of = [
        Wish("a1", 1, "first", 40),
        Wish("a1", 2, "second", 60),
        Wish("a2", 3, "large", 200),
        Wish("b3", 4, "small", 10),
    ]
    kept = divided(of, 112, pod_bytes=1)
    assert kept == {("a1", "first"), ("a1", "second"), ("b3", "small")}


def test_the_rest_is_given_to_pods_in_turns() -> None:
    """Of four large groups of two pods, two fit into what a third pod cannot use."""
    of = [
        Wish("a1", 1, "small", 40),
        Wish("a1", 2, "large", 110),
        Wish("a1", 3, "another", 110),
        Wish("a2", 1, "small", 60),
        Wish("a2", 2, "large", 110),
        Wish("a2", 3, "another", 110),
        Wish("a3", 1, "small", 10),
        Wish("a3", 2, "giant", 1000),
    ]
    kept = divided(of, 41 + 61 + 11 + 2 * 110, pod_bytes=1)
    large = {key for key in kept if key[1] != "small"}
    assert large == {("a1", "large"), ("a2", "large")}


def assert_has_share(mine: Wishes, kept: Kept, share: int) -> None:
    """All that fits into the share, or as much as fits within one group."""
    if size(mine) <= share:
        assert size(mine, kept) == size(mine)
    else:
        assert size(mine, kept) > share - LARGEST - POD_BYTES


@given(wishes, budgets)
def test_namespaces_and_their_pods_have_equal_shares(of: Wishes, budget: int) -> None:
    kept = divided(of, budget)
    namespaces = by("namespace", of)
    for mine in namespaces.values():
        share = budget // len(namespaces)
        assert_has_share(mine, kept, share)
        pods = by("uid", mine)
        for its in pods.values():
            assert_has_share(
                its,
                kept,
                min(size(mine), share) // len(pods),
            )


@given(wishes, budgets, st.randoms())
def test_the_order_of_events_has_no_effect(of: Wishes, budget: int, random: Random) -> None:
    shuffled = random.sample(of, len(of))
    assert divided(shuffled, budget) == divided(of, budget)


@given(wishes, wishes, budgets)
def test_nothing_within_a_share_is_displaced(
    before: Wishes,
    after: Wishes,
    budget: int,
) -> None:
    """For any requests of the other two namespaces, before and after."""
    mine = [wish for wish in before if wish.namespace == "a"]
    if size(mine) > budget // 3:
        return
    for wished in (before, after):
        of = mine + [wish for wish in wished if wish.namespace != "a"]
        assert {wish.key for wish in mine} <= set(divided(of, budget))
