"""How a candidate reads and writes the Lease."""

from datetime import UTC, datetime

import msgspec
import pytest

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.manager.lease_record import Candidate, Observation, observe, release

AT = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)


def lease(
    holder: str | None, *, version: str = "1", renewed: str = "t0", seconds: int | None = 15
) -> Lease:
    return Lease(
        ObjectMeta(name="l", resource_version=version),
        LeaseSpec(holder, seconds, renew_time=renewed, lease_transitions=3),
    )


@pytest.mark.parametrize(
    ("first", "second", "holder", "free_at"),
    [
        pytest.param(None, lease("a"), "a", 125, id="seen-for-the-first-time"),
        pytest.param(lease("a"), lease("a", version="2"), "a", 115, id="unchanged-is-no-renewal"),
        pytest.param(lease("a", renewed="2030"), lease("a", renewed="1970"), "a", 125, id="renewed-whatever-its-time"),
        pytest.param(lease("a"), None, "a", 115, id="deleted-counts-as-held"),
        pytest.param(lease("a"), lease(""), "", 110, id="released"),
        pytest.param(lease("a"), lease(None), "", 110, id="no-holder"),
        pytest.param(lease("a"), Lease(ObjectMeta(name="l"), None), "", 110, id="no-spec"),
        pytest.param(lease("a"), lease("b", seconds=None), "b", 110, id="no-duration"),
    ],
)  # fmt: skip
def test_a_lease_is_held_for_its_duration_since_its_record_changed(
    first: Lease | None, second: Lease | None, holder: str, free_at: float
) -> None:
    """Read at 100 s and at 110 s."""
    seen = observe(observe(None, first, now=100.0), second, now=110.0)

    assert (seen.holder, seen.free_at) == (holder, free_at)
    assert seen.resource_version == (second.metadata.resource_version if second else "")


def test_transitions_are_counted_from_zero() -> None:
    taken = Candidate("me", 15).acquisition(Observation(LeaseSpec(), "7", 100.0), AT)
    assert msgspec.json.decode(taken)["spec"]["leaseTransitions"] == 1


def test_writes_contain_the_spec_and_patches_the_observed_version() -> None:
    seen = Observation(lease("a").spec or LeaseSpec(), "7", 100.0)
    me = Candidate("me", 15)

    created, taken, renewed, released = (
        msgspec.json.decode(each)
        for each in (
            me.creation(NamespacedName("ns", "l"), AT),
            me.acquisition(seen, AT),
            me.renewal(seen, AT),
            release(seen, AT),
        )
    )
    stamp = "2026-11-21T10:00:00.250000Z"

    assert {each["metadata"]["resourceVersion"] for each in (taken, renewed, released)} == {"7"}
    assert created["metadata"] == {"name": "l", "namespace": "ns"}
    assert created["spec"] == {**taken["spec"], "leaseTransitions": 0}
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
