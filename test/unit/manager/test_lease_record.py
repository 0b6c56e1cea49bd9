"""How a candidate reads and writes the Lease."""

from support.cases import cases

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.manager.leader_election import UNREAD, observe


def lease(
    holder: str | None,
    *,
    version: str = "1",
    renewed: str = "2030",
    seconds: int | None = 15,
) -> Lease:
    metadata = ObjectMeta(name="l", resource_version=version)
    return Lease(metadata, LeaseSpec(holder, seconds, renew_time=renewed))


HELD = lease("a")


@cases(
    "first second holder free_at version",
    seen_for_the_first_time=(None, HELD, "a", 125, "1"),
    unchanged_is_no_renewal=(HELD, lease("a", version="2"), "a", 115, "2"),
    renewed_whatever_its_time=(HELD, lease("a", renewed="1970"), "a", 125, "1"),
    deleted_counts_as_held=(HELD, None, "a", 115, ""),
    released=(HELD, lease(""), "", 110, "1"),
    no_holder=(HELD, lease(None), "", 110, "1"),
    no_spec=(HELD, Lease(ObjectMeta(name="l")), "", 110, ""),
    no_duration=(HELD, lease("b", seconds=None), "b", 110, "1"),
)
def test_a_lease_is_held_for_its_duration_since_its_record_changed(
    first: Lease | None,
    second: Lease | None,
    holder: str,
    free_at: float,
    version: str,
) -> None:
    """Read at 100 s and at 110 s."""
    before = observe(UNREAD, first, now=100.0)
    seen = observe(before, second, now=110.0)

    assert (seen.holder, seen.free_at, seen.resource_version) == (holder, free_at, version)
