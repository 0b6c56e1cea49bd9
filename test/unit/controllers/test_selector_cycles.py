"""Cycles of markers that write labels which select pods for each other."""

from collections.abc import Mapping
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import marker, policy_wire, probe_wire

from kruise_probe.api.keys import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.selector_cycles import (
    LISTED_STEPS,
    NO_CYCLES,
    SelectorCycles,
    cycle_text,
    find_cycles,
)

Labels = Mapping[str, str | None]


def having(key: str, *values: str, without: bool = False) -> dict[str, Any]:
    """A requirement: `values` of the label, or that it is there at all; `without` is the opposite."""
    if values:
        return {"key": key, "operator": "NotIn" if without else "In", "values": list(values)}
    return {"key": key, "operator": "DoesNotExist" if without else "Exists"}


def made(
    name: str, writes: Mapping[str, str], *requirements: dict[str, Any], **more: Any
) -> CompiledMarker:
    selector = {"matchExpressions": list(requirements)}
    probe = probe_wire(condition=f"example.com/{name}", policies=[policy_wire(labels=writes)])
    return compile_marker(marker(name, selector=selector, probes=[probe], **more))


def key(name: str) -> NamespacedName:
    return NamespacedName("default", name)


def text(name: str, *markers: CompiledMarker) -> str:
    return cycle_text(find_cycles(markers).through(key(name)))


A = made("a", {"x": "1"}, having("y", without=True))
B = made("b", {"y": "1"}, having("x"))


def test_two_markers_that_select_each_others_labels_are_a_cycle() -> None:
    a_to_b, b_to_a = (
        "a writes label 'x', by which b selects pods",
        "b writes label 'y', by which a selects pods",
    )
    assert text("a", A, B) == f"{a_to_b}; {b_to_a}"
    assert text("b", B, A) == f"{b_to_a}; {a_to_b}"


def test_a_label_from_a_message_may_have_any_value() -> None:
    policies = [policy_wire(from_message=[{"label": "x"}])]
    selector = {"matchExpressions": [having("y", without=True)]}
    writer = marker("a", selector=selector, probes=[probe_wire(policies=policies)])
    reader = made("b", {"y": "1"}, having("x", "2"))
    assert text("a", compile_marker(writer), reader)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(A, made("b", {"z": "1"}, having("x")), id="one-way-only"),
        pytest.param(
            A, made("b", {"y": "1"}, having("x", "2")), id="a-value-that-is-never-written"
        ),
        pytest.param(
            A,
            made("b", {"y": "1"}, having("x", "2", without=True)),
            id="excludes-a-value-that-is-never-written",
        ),
        pytest.param(
            made("a", {"x": "1"}, having("y", without=True), having("app", "web")),
            made("b", {"y": "1"}, having("x"), having("app", "db")),
            id="no-pod-has-both-apps",
        ),
        pytest.param(
            made("a", {"x": "1"}, having("y", without=True), having("app")),
            made("b", {"y": "1"}, having("x"), having("app", without=True)),
            id="no-pod-has-and-lacks-a-label",
        ),
        pytest.param(
            A, made("b", {"y": "1"}, having("x"), deleting=True), id="one-is-being-deleted"
        ),
    ],
)
def test_no_cycle(one: CompiledMarker, other: CompiledMarker) -> None:
    assert find_cycles([one, other]) == NO_CYCLES


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(A, made("b", {"y": "1"}, having("x", "1")), id="the-value-that-is-written"),
        pytest.param(
            A, made("b", {"y": "1"}, having("x", "1", without=True)), id="excludes-what-is-written"
        ),
        pytest.param(
            made("a", {"x": "1"}, having("y", without=True), having("app", "web")),
            made("b", {"y": "1"}, having("x"), having("app", "web", "db")),
            id="a-pod-may-have-an-app-of-both",
        ),
        pytest.param(
            made("a", {"x": "1", "app": "db"}, having("y", without=True), having("tier", "1")),
            made("b", {"y": "1", "tier": "1"}, having("x"), having("app", "db")),
            id="labels-that-a-marker-writes-do-not-keep-them-apart",
        ),
    ],
)
def test_a_cycle(one: CompiledMarker, other: CompiledMarker) -> None:
    assert find_cycles([one, other]).edges.keys() == {key("a"), key("b")}


def test_the_message_of_a_long_cycle_lists_some_steps_and_counts_the_rest() -> None:
    ring = [
        made(f"m{number}", {f"l{number}": "1"}, having(f"l{(number - 1) % 7}"))
        for number in range(7)
    ]
    assert text("m3", *ring) == (
        "m3 writes label 'l3', by which m4 selects pods; m4 writes label 'l4', by which m5 selects pods; "
        "m5 writes label 'l5', by which m6 selects pods; m6 writes label 'l6', by which m0 selects pods; and 3 more"
    )


@pytest.mark.parametrize(
    ("markers", "end"),
    [
        pytest.param(LISTED_STEPS, "m0 selects pods", id="all-listed"),
        pytest.param(LISTED_STEPS + 1, "; and 1 more", id="one-more"),
    ],
)
def test_the_message_of_a_cycle_counts_only_steps_that_it_does_not_list(
    markers: int, end: str
) -> None:
    ring = [
        made(f"m{number}", {f"l{number}": "1"}, having(f"l{(number - 1) % markers}"))
        for number in range(markers)
    ]
    assert text("m0", *ring).endswith(end)


def test_a_marker_that_only_leads_to_a_cycle_is_not_reported() -> None:
    leads = made("c", {"x": "1"}, having("app", "web"))
    assert text("c", A, B, leads) == ""
    assert find_cycles([A, B, leads]) == find_cycles([A, B])


names = st.sampled_from("abcdef")
labels = st.sampled_from("tuvwxyz")


@given(st.dictionaries(names, st.tuples(st.sets(labels, max_size=3), labels, st.booleans())))
def test_only_markers_that_reach_themselves_are_in_a_cycle(
    shapes: dict[str, tuple[set[str], str, bool]],
) -> None:
    """If selectors only test whether a key exists, every value matters, and all markers may select one pod."""
    markers = [
        made(name, dict.fromkeys(writes, "1"), having(reads, without=without))
        for name, (writes, reads, without) in shapes.items()
    ]
    after = {
        name: {
            other
            for other, (_, reads, _) in shapes.items()
            if other != name and reads in writes - {shapes[name][1]}
        }
        for name, (writes, _, _) in shapes.items()
    }

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = set(after[start])
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting |= after[at]
        return seen

    meeting = _possible_meetings(shapes)
    cycles = find_cycles(markers)
    if meeting:
        assert {each.name for each in cycles.edges} == {
            name for name in shapes if name in reachable(name)
        }
    for name in shapes:
        steps = cycles.through(key(name))
        assert bool(steps) == (key(name) in cycles.edges)
        if steps:
            assert (steps[0].writer, steps[-1].reader) == (key(name), key(name))
            assert all(step.key in shapes[step.writer.name][0] for step in steps)
            assert all(step.key == shapes[step.reader.name][1] for step in steps)


def _possible_meetings(shapes: dict[str, tuple[set[str], str, bool]]) -> bool:
    """Whether no two selectors exclude each other by a label that no marker writes."""
    written = {label for writes, _, _ in shapes.values() for label in writes}
    fixed = [(reads, without) for _, reads, without in shapes.values() if reads not in written]
    return not any((reads, not without) in fixed for reads, without in fixed)


def test_the_order_of_markers_has_no_effect() -> None:
    ring = [
        made(f"m{number}", {f"l{number}": "1"}, having(f"l{(number - 1) % 5}"))
        for number in range(5)
    ]
    assert find_cycles(ring) == find_cycles(reversed(ring))


class TestNamespaces:
    def test_markers_of_other_namespaces_are_not_part_of_a_cycle(self) -> None:
        cycles = SelectorCycles()
        cycles.set_marker(A)
        cycles.set_marker(made("b", {"y": "1"}, having("x"), namespace="other"))
        assert cycles.refresh("default", lambda: 0.0).markers == set()
        assert cycles.through(key("a")) == ()

    def test_a_change_is_reported_for_all_markers_of_the_cycle_once(self) -> None:
        cycles = SelectorCycles()
        cycles.set_marker(A)
        cycles.set_marker(B)
        assert cycles.refresh("default", lambda: 0.0) == ({key("a"), key("b")}, 0.0)
        assert cycles.refresh("default", lambda: 0.0) == (frozenset(), 0.0)
        cycles.remove_marker(key("b"))
        assert cycles.refresh("default", lambda: 0.0).markers == {key("a"), key("b")}
        assert cycles.through(key("a")) == ()

    def test_a_change_that_leaves_the_cycles_as_they_are_is_not_reported(self) -> None:
        cycles = SelectorCycles()
        for each in (A, B):
            cycles.set_marker(each)
        cycles.refresh("default", lambda: 0.0)
        for name, reads in (("unrelated", "w"), ("reader-of-the-cycle", "x")):
            cycles.set_marker(made(name, {"z": "1"}, having(reads)))
            assert cycles.refresh("default", lambda: 0.0) == (frozenset(), 0.0)

    def test_a_long_computation_is_followed_by_a_pause(self) -> None:
        cycles = SelectorCycles()
        clock = iter([0.0, 1.0, 2.0, 51.0, 60.0])
        cycles.set_marker(A)
        assert cycles.refresh("default", lambda: next(clock)).retry_after_seconds == 0
        assert cycles.refresh("default", lambda: 2.0) == (frozenset(), 0.0), "nothing has changed"
        cycles.set_marker(B)
        again = cycles.refresh("default", lambda: next(clock))
        assert again == (frozenset(), 49.0)
        assert cycles.refresh("default", lambda: next(clock)).markers == {key("a"), key("b")}

    def test_a_namespace_without_markers_uses_no_memory(self) -> None:
        cycles = SelectorCycles()
        cycles.set_marker(A)
        cycles.remove_marker(A.key)
        cycles.refresh("default", lambda: 0.0)
        assert cycles._namespaces == {}


def test_the_search_of_400_connected_markers_is_bounded() -> None:
    """Each writes 64 labels, and selects by labels of all others."""
    markers = [
        made(
            f"m{number}",
            {f"l{number % 2}-{each}": "1" for each in range(32)},
            *(having(f"l{1 - number % 2}-{each}") for each in range(10)),
        )
        for number in range(400)
    ]
    begun = process_time()
    cycles = find_cycles(markers)
    spent = process_time() - begun
    assert cycles.edges
    assert spent < 2.0
