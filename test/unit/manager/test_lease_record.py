"""How a candidate reads and writes the Lease."""

from datetime import UTC, datetime

import msgspec
import pytest

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.manager.lease_record import Candidate, Observation, observe, release

AT = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)


def lease(holder: str, *, version: str = "1", renewed: str = "t0", seconds: int = 15) -> Lease:
    return Lease(
        ObjectMeta(name="l", resource_version=version),
        LeaseSpec(holder, seconds, renew_time=renewed, lease_transitions=3),
    )


def test_a_lease_is_held_for_its_duration_since_it_was_observed() -> None:
    seen = observe(None, lease("a"), now=100.0)

    assert (seen.holder, seen.free_at) == ("a", 115.0)


def test_an_unchanged_record_is_no_renewal() -> None:
    first = observe(None, lease("a"), now=100.0)
    again = observe(first, lease("a", version="2"), now=110.0)

    assert again.free_at == 115.0
    assert again.resource_version == "2"


def test_a_changed_record_starts_a_new_term_whatever_its_renew_time() -> None:
    first = observe(None, lease("a", renewed="2030"), now=100.0)
    renewed = observe(first, lease("a", renewed="1970"), now=110.0)

    assert renewed.free_at == 125.0


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(LeaseSpec(""), id="released"),
        pytest.param(LeaseSpec(None, 15), id="no-holder"),
        pytest.param(None, id="no-spec"),
    ],
)
def test_a_lease_without_holder_can_be_acquired_at_once(spec: LeaseSpec | None) -> None:
    seen = observe(None, Lease(ObjectMeta(name="l"), spec), now=100.0)

    assert seen.free_at == 100.0


def test_a_holder_without_a_duration_holds_the_lease_for_no_time() -> None:
    assert observe(None, Lease(ObjectMeta(name="l"), LeaseSpec("a")), now=100.0).free_at == 100.0


def test_transitions_are_counted_from_zero() -> None:
    taken = Candidate("me", 15).acquisition(Observation(LeaseSpec(), "7", 100.0), AT)
    assert msgspec.json.decode(taken)["spec"]["leaseTransitions"] == 1


def test_a_deleted_lease_counts_as_held_until_its_last_seen_term_ends() -> None:
    seen = observe(observe(None, lease("a"), now=100.0), None, now=103.0)

    assert (seen.holder, seen.free_at, seen.resource_version) == ("a", 115.0, "")


def test_writes_contain_the_observed_version_and_only_the_spec() -> None:
    seen = Observation(lease("a").spec or LeaseSpec(), "7", 100.0)
    me = Candidate("me", 15)

    taken, renewed, released = (
        msgspec.json.decode(each)
        for each in (me.acquisition(seen, AT), me.renewal(seen, AT), release(seen, AT))
    )
    stamp = "2026-11-21T10:00:00.250000Z"

    assert {each["metadata"]["resourceVersion"] for each in (taken, renewed, released)} == {"7"}
    assert taken["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": 4,
    }
    assert renewed["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": stamp,
    }
    assert released["spec"] == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": stamp,
        "renewTime": stamp,
    }


def test_the_first_lease_is_created_with_all_fields() -> None:
    made = msgspec.json.decode(Candidate("me", 15).creation(NamespacedName("ns", "l"), AT))

    assert made["metadata"] == {"name": "l", "namespace": "ns"}
    assert made["spec"]["leaseTransitions"] == 0
