"""Which markers probe a pod, and which probes a limit leaves out."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import Json, condition_wire, container_wire, marker, pod, probe_wire

from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.limits import (
    ENTRY_BYTES,
    ENTRY_TOO_LARGE,
    MARKERS_PER_POD,
    NO_ROOM,
    REPORTED_PROBES,
    TOO_MANY_MARKERS,
    claiming_markers,
    left_out_of,
    probing_markers,
    reported_without_room,
)
from kruise_probe.controllers.nodes.plan import probes_of_pod
from kruise_probe.controllers.pods.claims import claims_of


def many(count: int, *, probes: int = 1, **more: object) -> tuple[CompiledMarker, ...]:
    """The n-th is the n-th oldest."""
    wires = [probe_wire(f"p{n}", condition=f"c{n}") for n in range(probes)]
    return tuple(
        compile_marker(
            marker(
                f"m{n:04}", created=f"2026-01-01T{n // 60:02}:{n % 60:02}:00Z", probes=wires, **more
            )
        )
        for n in range(count)
    )


def large(*sizes: int, containers: str = "") -> CompiledMarker:
    probes = [
        probe_wire(
            f"p{number}",
            condition=f"c{number}",
            handler={"httpGet": {"port": 80, "path": "/" + "x" * size}},
            container=containers[number] if containers else "main",
        )
        for number, size in enumerate(sizes)
    ]
    return compile_marker(marker("large", probes=probes))


@given(st.integers(0, 2 * MARKERS_PER_POD), st.randoms())
def test_the_oldest_markers_are_used_in_every_order_of_events(count: int, random: Random) -> None:
    markers = many(count)
    shuffled = tuple(random.sample(markers, count))
    assert probing_markers(shuffled) == markers[:MARKERS_PER_POD]
    beyond = {each.key.name for each in markers[MARKERS_PER_POD:]}
    assert left_out_of(pod(), shuffled, ()).keys() == beyond


def test_a_deleted_marker_does_not_count_towards_the_limit() -> None:
    markers, ending = many(MARKERS_PER_POD), many(1, deleting=True)
    assert probing_markers((*ending, *markers)) == markers
    assert left_out_of(pod(), (*ending, *markers), ()) == {}


@pytest.mark.parametrize("probes", [1, 3, 32])
def test_conditions_of_markers_over_the_limit_are_bounded(probes: int) -> None:
    markers = many(500, probes=probes)
    reported = claiming_markers(markers)[MARKERS_PER_POD:]
    assert sum(len(each.probes) for each in reported) <= REPORTED_PROBES
    assert len(reported) == REPORTED_PROBES // probes
    assert reported == markers[MARKERS_PER_POD : MARKERS_PER_POD + len(reported)]


def test_no_probe_of_a_marker_over_the_limit_runs() -> None:
    names = [each.name for each in probes_of_pod(pod(), many(MARKERS_PER_POD + 3))]
    assert names == [f"m{n:04}#p0" for n in range(MARKERS_PER_POD)]


def test_markers_over_the_limit_are_left_out_with_the_reason() -> None:
    left_out = left_out_of(pod(), many(MARKERS_PER_POD + 2), ())
    assert left_out == {"m0064": TOO_MANY_MARKERS, "m0065": TOO_MANY_MARKERS}


@pytest.mark.parametrize(
    ("of", "runs"),
    [
        pytest.param(large(60_000), True, id="below-the-limit"),
        pytest.param(large(66_000), False, id="one-large-probe"),
        pytest.param(large(33_000, 33_000), False, id="two-together"),
        pytest.param(large(33_000, 33_000, containers="ab"), True, id="one-container-is-missing"),
    ],
)
def test_an_entry_over_the_limit_is_left_out(of: CompiledMarker, runs: bool) -> None:
    there = pod(containers=[container_wire("main"), container_wire("a")])
    small = many(1)
    left_out = left_out_of(there, (*small, of), ())
    assert left_out == ({} if runs else {"large": ENTRY_TOO_LARGE})
    names = {each.name.partition("#")[0] for each in probes_of_pod(there, (*small, of))}
    assert names == {"m0000", "large"} - ({"large"} if not runs else set())


def test_an_entry_of_exactly_the_limit_runs() -> None:
    of = large(ENTRY_BYTES - large(0).entry_bytes)
    assert of.entry_bytes == ENTRY_BYTES
    assert left_out_of(pod(), (*many(MARKERS_PER_POD - 1), of), {"m0000"}).keys() == {"m0000"}


def test_a_marker_without_room_has_reason_no_room() -> None:
    assert left_out_of(pod(), many(2), {"m0001"}) == {"m0001": NO_ROOM}


@pytest.mark.parametrize(
    ("condition", "running", "found"),
    [
        pytest.param(
            condition_wire("c0", "Unknown", reason="NoRoom"), [], {"m0000"}, id="left-out"
        ),
        pytest.param(
            condition_wire("c0", "Unknown", reason="NoRoom"), ["m0000#p0"], set(), id="runs"
        ),
        pytest.param(condition_wire("c0", "True"), [], (), id="has-a-result"),
    ],
)
def test_after_a_restart_missing_room_is_read_from_the_pod(
    condition: Json, running: list[str], found: set[str]
) -> None:
    there = pod(conditions=[condition])
    assert set(reported_without_room(there, many(1), running)) == set(found)


def test_markers_over_the_limit_own_only_keys_that_no_other_claims() -> None:
    """Markers over the limit own keys that no other marker claims, so their marks stay."""
    markers = many(MARKERS_PER_POD + 1)
    claims = claims_of(markers)
    assert claims.condition_types["c0"].name == "m0000#p0"
    assert claims.claims[-1].name == "m0064#p0"
    assert claims.claims[-1].condition_type == ""
