"""Which probe owns which condition type, label and annotation of a pod."""

from typing import Any

import msgspec
from hypothesis import given
from support import strategies
from support.builders import marker, owned_fields, pod, policy_wire, probe_wire
from support.wire import Json

from kruise_probe.api.extraction import FromMessage
from kruise_probe.api.resources import MARKERS
from kruise_probe.controllers.claims import (
    StaleMarks,
    claims_of,
    conflicts_of,
)
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker


def compiled(name: str, *probes: Json, **more: Any) -> CompiledMarker:
    return compile_marker(marker(name, probes=probes, **more))


def test_a_key_from_the_message_is_owned_like_a_static_one() -> None:
    value = policy_wire(from_message=[{"label": "l", "regex": "a"}, {"annotation": "a"}])
    static = policy_wire("Failed", {"l": "x"}, {"a": "x", "b": "x"})
    older = compiled("older", probe_wire(policies=[value]))
    younger = compiled("younger", probe_wire(condition=None, policies=[static]))
    claims = claims_of((older, younger))
    owners = {mark.name: owner.name for mark, owner in claims.owners.items()}
    assert owners["l"] == owners["a"] == "older#healthy"
    assert owners["b"] == "younger#healthy"
    conflicts = [(each.mark.kind, each.mark.name) for each in conflicts_of(younger, claims)]
    assert conflicts == [("label", "l"), ("annotation", "a")]


def test_patterns_beyond_the_limit_of_a_pod_are_not_matched() -> None:
    """Of the youngest markers. Their keys stay, with static values; values without a pattern stay as well."""

    def one(n: int) -> CompiledMarker:
        values = [{"label": f"l{n}", "regex": ".{1,150}"}, {"annotation": f"a{n}"}]
        probe = probe_wire(condition=None, policies=[policy_wire(from_message=values)])
        return compiled(f"m{n}", probe, created=f"2026-01-01T00:00:0{n}Z")

    over_limit = [
        [
            value.over_limit
            for value in claim.wanted["Succeeded"].values()
            if isinstance(value, FromMessage)
        ]
        for claim in claims_of((one(0), one(1), one(2))).claims
    ]
    assert over_limit == [[False, False], [True, False], [True, False]]


@given(strategies.marker_sets(namespaces=("default",), min_size=1))
def test_everything_that_a_marker_names_is_owned_by_exactly_one_probe(wires: list[Json]) -> None:
    markers = [compile_marker(MARKERS.decode(msgspec.json.encode(each))) for each in wires]
    claims = claims_of(tuple(markers))
    assert claims.owners.keys() == set().union(*(each.marks for each in markers))
    owners = [mark for each in claims.claims for mark in each.wanted["Succeeded"]]
    assert len(owners) == len(set(owners))


def test_an_owner_without_its_container_still_owns_its_keys() -> None:
    policies = [policy_wire("Succeeded", {"l": "1"}, {"a": "1"})]
    owner = compiled("a", probe_wire(policies=policies, container="absent"))
    other = compiled("b", probe_wire(policies=policies))
    claims = claims_of((owner, other))
    found = claims.on(pod())
    assert [(each.name, each.condition_type) for each in found.claims] == [("b#healthy", "")]
    assert not found.owners
    assert {each.mark.name for each in conflicts_of(other, claims)} == {
        "l",
        "a",
        "example.com/healthy",
    }
    assert claims.on(pod("another")) is found, "resolved once for all pods like it"
    assert claims_of((other,)).on(pod()) is claims_of((other,))


def test_a_mark_that_the_cache_does_not_show_is_not_stale() -> None:
    """It would never be removed, so a deletion would wait forever."""
    policies = [policy_wire("Succeeded", {"l": "1"}, {"a": "1"})]
    ending = compiled("web", probe_wire(policies=policies), deleting=True)
    bare = pod(owned=owned_fields(labels=["l"], annotations=["a"]))
    assert not StaleMarks(bare, claims_of(())).has_any_of(ending)
