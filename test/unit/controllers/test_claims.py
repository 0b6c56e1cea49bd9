"""Which probe owns which condition type, label and annotation of a pod."""

from hypothesis import given
from support import strategies
from support.builders import owned_fields, pod, policy_wire, probe_wire
from support.wire import Json, decoded
from unit.controllers.common import compiled, stamp

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.resources import MARKERS
from kruise_probe.controllers.claims import StaleMarks, claims_of, conflicts_of
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker

L_AND_A = [policy_wire("Succeeded", {"l": "1"}, {"a": "1"})]


def test_a_key_from_the_message_is_owned_like_a_static_one() -> None:
    value = policy_wire(from_message=[{"label": "l", "regex": "a"}, {"annotation": "a"}])
    static = policy_wire("Failed", {"l": "x"}, {"a": "x", "b": "x"})
    older = compiled(
        probe_wire(policies=[value]),
        name="older",
    )
    younger = compiled(
        probe_wire(condition=None, policies=[static]),
        name="younger",
    )

    claims = claims_of((older, younger))

    owners = {mark.name: owner.name for mark, owner in claims.owners.items()}
    assert owners == {
        "l": "older#healthy",
        "a": "older#healthy",
        "example.com/healthy": "older#healthy",
        "b": "younger#healthy",
    }
    lost = [conflict.mark for conflict in conflicts_of(younger, claims)]
    assert [(mark.kind, mark.name) for mark in lost] == [("label", "l"), ("annotation", "a")]


def test_patterns_beyond_the_limit_of_a_pod_are_not_matched() -> None:
    """Of the youngest markers. Their keys stay, with static values; values without a pattern stay as well."""

    def numbered_marker(n: int) -> CompiledMarker:
        values = [{"label": f"l{n}", "regex": ".{1,150}"}, {"annotation": f"a{n}"}]
        probe = probe_wire(
            condition=None,
            policies=[policy_wire(from_message=values)],
        )
        return compiled(probe, name=f"m{n}", created=stamp(n))

    over_limit = []
    markers = [numbered_marker(n) for n in range(3)]
    for claim in claims_of(tuple(markers)).claims:
        values = claim.wanted["Succeeded"].values()
        over_limit.append([value.over_limit for value in values if isinstance(value, FromMessage)])
    assert over_limit == [[False, False], [True, False], [True, False]]


@given(strategies.marker_sets(namespaces=("default",), min_size=1))
def test_everything_that_a_marker_names_is_owned_by_exactly_one_probe(wires: list[Json]) -> None:
    markers = [compile_marker(decoded(MARKERS, wire)) for wire in wires]
    claims = claims_of(tuple(markers))
    assert claims.owners.keys() == set().union(*(marker.marks for marker in markers))
    owned = [mark for claim in claims.claims for mark in claim.wanted["Succeeded"]]
    assert len(owned) == len(set(owned))


def test_an_owner_without_its_container_still_owns_its_keys() -> None:
    owner = compiled(
        probe_wire(policies=L_AND_A, container="absent"),
        name="a",
    )
    other = compiled(
        probe_wire(policies=L_AND_A),
        name="b",
    )
    claims = claims_of((owner, other))
    found = claims.on(pod())
    (claim,) = found.claims
    assert claim.name == "b#healthy"
    assert claim.condition_type == ""
    assert not found.owners
    lost = {conflict.mark.name for conflict in conflicts_of(other, claims)}
    assert lost == {"l", "a", "example.com/healthy"}
    assert claims.on(pod("another")) is found, "resolved once for all pods like it"
    assert claims_of((other,)).on(pod()) is claims_of((other,))


def test_a_mark_that_the_cache_does_not_show_is_not_stale() -> None:
    """It would never be removed, so a deletion would wait forever."""
    ending = compiled(
        probe_wire(policies=L_AND_A),
        deleting=True,
    )
    bare = pod(owned=owned_fields(labels=["l"], annotations=["a"]))
    assert not StaleMarks(bare, claims_of(())).has_any_of(ending)
