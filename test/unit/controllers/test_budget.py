"""How the bytes of a NodePodProbe are divided if not everything fits."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import marker, pod, probe_wire
from support.cases import cases

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.shares import equal_share
from kruise_probe.api.v1alpha1 import PodProbe
from kruise_probe.controllers.budget import (
    FittedSpec,
    Group,
    divide,
    fit,
    object_bytes,
)
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.plan import plan

OLD = compile_marker(marker("old", created="2025-01-01T00:00:00Z"))
NEW = compile_marker(marker("new", probes=[probe_wire("p", condition="c")]))

POD_BYTES = 300
LARGEST = 100


def entries(pods: int, *markers: CompiledMarker) -> tuple[PodProbe, ...]:
    return plan(
        [pod(f"web-{number}") for number in range(pods)], lambda _: markers, (), deleting={}
    )


def fitted(
    wanted: tuple[PodProbe, ...], current: tuple[PodProbe, ...], limit_bytes: int
) -> FittedSpec:
    ranks: Mapping[NamespacedName, object] = {each.key: each.order for each in (OLD, NEW)}
    return fit(wanted, current, ranks, limit_bytes)


def probed(result: FittedSpec) -> dict[str, list[str]]:
    return {each.name: [probe.name for probe in each.probes or ()] for each in result.entries}


def pods_left_out(result: FittedSpec) -> Counter[str]:
    return Counter(marker for markers in result.no_room.values() for marker in markers)


def test_the_sizes_of_many_small_probes_add_up_to_that_of_the_object() -> None:
    """So the older marker is kept if the object has room for it, within two bytes."""
    many = compile_marker(
        marker(
            "old",
            created="2025-01-01T00:00:00Z",
            probes=[probe_wire(f"p{number}", condition=f"c{number}") for number in range(32)],
        )
    )
    of = pod()
    alone = plan([of], lambda _: (many,), (), deleting={})
    both = plan([of], lambda _: (many, NEW), (), deleting={})
    result = fitted(both, (), object_bytes(alone) + 2)
    assert result.entries == alone
    assert pods_left_out(result) == {"new": 1}


def test_a_command_counts_as_it_is_stored() -> None:
    def wanted(letter: str) -> tuple[PodProbe, ...]:
        handler = {"exec": {"command": ["sh", "-c", letter * 100]}}
        return entries(2, compile_marker(marker("old", probes=[probe_wire(handler=handler)])))

    plain, escaped = object_bytes(wanted("x")), object_bytes(wanted("<"))
    assert escaped - plain == 2 * 100 * len("u003c")
    assert pods_left_out(fitted(wanted("<"), (), plain)) == {"old": 1}


def test_the_newest_marker_is_left_out_first_and_no_more_than_needed() -> None:
    wanted = entries(3, OLD, NEW)
    result = fitted(wanted, (), object_bytes(wanted) - 1)
    assert probed(result) == {
        "web-0": ["old#healthy", "new#p"],
        "web-1": ["old#healthy", "new#p"],
        "web-2": ["old#healthy"],
    }
    assert pods_left_out(result) == {"new": 1}


def test_a_new_pod_does_not_displace_a_running_probe() -> None:
    wanted = entries(3, NEW)
    result = fitted(wanted, wanted[1:], object_bytes(wanted) - 1)
    assert probed(result) == {"web-1": ["new#p"], "web-2": ["new#p"]}


def test_entries_of_other_managers_are_kept() -> None:
    stranger = compile_marker(marker("stranger"))
    assert probed(fitted(entries(1, stranger), (), 0)) == {"web-0": ["stranger#healthy"]}


@pytest.mark.parametrize("more_bytes", range(0, 5000, 500))
def test_entries_of_other_managers_reduce_the_bytes_to_divide(more_bytes: int) -> None:
    stranger = compile_marker(marker("stranger"))
    limit = object_bytes(entries(5, stranger)) + more_bytes
    result = fitted(entries(5, stranger, OLD, NEW), (), limit)
    assert object_bytes(result.entries) <= limit
    assert all("stranger#healthy" in names for names in probed(result).values())


def test_large_entries_of_other_managers_leave_no_room() -> None:
    """In the entries of the same pods, and of pods of their own."""
    handler = {"exec": {"command": ["sh", "-c", "x" * 5_000]}}
    stranger = compile_marker(marker("stranger", probes=[probe_wire(handler=handler)]))
    theirs = plan([pod("web-0")], lambda _: (stranger,), (), deleting={})
    for wanted in (entries(1, stranger, OLD), (*theirs, *entries(2, OLD)[1:])):
        result = fitted(wanted, (), object_bytes(theirs) + 50)
        assert result.entries == theirs
        assert pods_left_out(result) == {"old": 1}


@cases(
    "wanted total share",
    everything_fits=([1, 2, 3], 10, 3),
    two_equals=([10, 10], 10, 5),
    the_rest_is_divided_equally=([2, 10, 10], 12, 5),
    one_gets_what_others_leave=([2, 3, 100], 12, 7),
    one_wants_exactly_its_part_and_a_byte_is_left=([2, 10], 5, 3),
    no_tenant=([], 10, 10),
)
def test_equal_shares_are_max_min_fair(wanted: list[int], total: int, share: int) -> None:
    assert equal_share(wanted, total) == share


groups = st.lists(
    st.builds(
        Group,
        namespace=st.sampled_from("abc"),
        uid=st.sampled_from("123"),
        marker=st.sampled_from("vwxyz"),
        order=st.integers(0, 3),
        running=st.booleans(),
        size_bytes=st.integers(1, LARGEST),
    ).map(
        lambda each: each._replace(uid=each.namespace + each.uid, order=(each.order, each.marker))
    ),
    unique_by=lambda each: (each.uid, each.marker),
    max_size=30,
)
budgets = st.integers(0, 4000)

Kept = Collection[tuple[str, str]]


def divided(of: Iterable[Group], budget: int) -> Kept:
    of = list(of)
    return divide(of, dict.fromkeys((each.uid for each in of), POD_BYTES), budget)


def size(of: Iterable[Group], kept: Kept | None = None) -> int:
    """Of the groups, or of those that were kept, with the parts of their pods."""
    counted = [each for each in of if kept is None or (each.uid, each.marker) in kept]
    pods = {each.uid for each in counted}
    return sum(each.size_bytes for each in counted) + POD_BYTES * len(pods)


def by(field: str, of: Iterable[Group]) -> dict[str, list[Group]]:
    found: dict[str, list[Group]] = {}
    for each in of:
        found.setdefault(getattr(each, field), []).append(each)
    return found


@given(groups, budgets)
def test_shares_fill_the_budget_and_no_group_that_fits_is_left_out(
    of: list[Group], budget: int
) -> None:
    kept = divided(of, budget)
    assert size(of, kept) <= budget
    for each in of:
        if (each.uid, each.marker) not in kept:
            assert size(of, {*kept, (each.uid, each.marker)}) > budget


def test_a_group_of_the_size_of_the_room_that_is_left_is_kept() -> None:
    of = [
        Group("a", "pod-1", "first", 1, False, 40),
        Group("a", "pod-1", "second", 2, False, 60),
        Group("a", "pod-2", "large", 3, False, 200),
        Group("b", "pod-3", "small", 4, False, 10),
    ]
    kept = divide(of, {"pod-1": 1, "pod-2": 1, "pod-3": 1}, 112)
    assert kept == {("pod-1", "first"), ("pod-1", "second"), ("pod-3", "small")}


def test_the_rest_is_given_to_pods_in_turns() -> None:
    """Of four large groups of two pods, two fit into what a third pod cannot use."""
    of = [
        Group("a", "pod-1", "small", 1, False, 40),
        Group("a", "pod-1", "large", 2, False, 110),
        Group("a", "pod-1", "another", 3, False, 110),
        Group("a", "pod-2", "small", 1, False, 60),
        Group("a", "pod-2", "large", 2, False, 110),
        Group("a", "pod-2", "another", 3, False, 110),
        Group("a", "pod-3", "small", 1, False, 10),
        Group("a", "pod-3", "giant", 2, False, 1000),
    ]
    kept = divide(of, {"pod-1": 1, "pod-2": 1, "pod-3": 1}, 41 + 61 + 11 + 2 * 110)
    assert {each for each in kept if each[1] != "small"} == {("pod-1", "large"), ("pod-2", "large")}


def assert_has_share(mine: list[Group], kept: Kept, share: int) -> None:
    """All that fits into the share, or as much as fits within one group."""
    if size(mine) <= share:
        assert size(mine, kept) == size(mine)
    else:
        assert size(mine, kept) > share - LARGEST - POD_BYTES


@given(groups, budgets)
def test_namespaces_and_their_pods_have_equal_shares(of: list[Group], budget: int) -> None:
    kept = divided(of, budget)
    namespaces = by("namespace", of)
    for mine in namespaces.values():
        share = budget // len(namespaces)
        assert_has_share(mine, kept, share)
        pods = by("uid", mine)
        for its in pods.values():
            assert_has_share(its, kept, min(size(mine), share) // len(pods))


@given(groups, budgets, st.randoms())
def test_the_order_of_events_has_no_effect(of: list[Group], budget: int, random: Random) -> None:
    shuffled = random.sample(of, len(of))
    assert divided(shuffled, budget) == divided(of, budget)


@given(groups, budgets)
def test_a_division_is_stable(of: list[Group], budget: int) -> None:
    """The next reconcile, which sees the result of this one."""
    kept = divided(of, budget)
    after = [each._replace(running=(each.uid, each.marker) in kept) for each in of]
    assert divided(after, budget) == kept


@given(groups, groups, budgets)
def test_nothing_within_a_share_is_displaced(
    before: list[Group], after: list[Group], budget: int
) -> None:
    """For any requests of the other two namespaces, before and after."""
    mine = [each for each in before if each.namespace == "a"]
    for others in (before, after):
        of = [*mine, *(each for each in others if each.namespace != "a")]
        if size(mine) <= budget // 3:
            assert size(of, divided(of, budget)) >= size(mine)
            assert {(each.uid, each.marker) for each in mine} <= set(divided(of, budget))


@given(groups, budgets)
def test_changes_within_a_share_displace_no_running_probe_of_others(
    of: list[Group], budget: int
) -> None:
    """One tenant's markers are replaced by markers of the same size that do not run yet."""
    kept = divided(of, budget)
    share = budget // max(len(by("namespace", of)), 1)
    replaced = size(by("namespace", of).get("b", [])) <= share
    after = [
        each._replace(marker=f"new-{each.marker}", running=False)
        if replaced and each.namespace == "b"
        else each._replace(running=(each.uid, each.marker) in kept)
        for each in of
    ]
    mine = {(each.uid, each.marker) for each in of if each.namespace == "a"}
    assert mine & set(kept) == mine & set(divided(after, budget))
