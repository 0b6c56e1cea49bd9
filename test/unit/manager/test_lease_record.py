"""How a candidate reads and writes the Lease."""

from datetime import UTC, datetime

from support.cases import cases

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.meta import ObjectMeta
from kruise_probe.manager.leader_election import UNREAD, observe

AT = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)


def lease(
    holder: str | None, *, version: str = "1", renewed: str = "t0", seconds: int | None = 15
) -> Lease:
    return Lease(
        ObjectMeta(name="l", resource_version=version),
        LeaseSpec(holder, seconds, renew_time=renewed, lease_transitions=3),
    )


@cases(
    "first second holder free_at",
    seen_for_the_first_time=(None, lease("a"), "a", 125),
    unchanged_is_no_renewal=(lease("a"), lease("a", version="2"), "a", 115),
    renewed_whatever_its_time=(lease("a", renewed="2030"), lease("a", renewed="1970"), "a", 125),
    deleted_counts_as_held=(lease("a"), None, "a", 115),
    released=(lease("a"), lease(""), "", 110),
    no_holder=(lease("a"), lease(None), "", 110),
    no_spec=(lease("a"), Lease(ObjectMeta(name="l")), "", 110),
    no_duration=(lease("a"), lease("b", seconds=None), "b", 110),
)
def test_a_lease_is_held_for_its_duration_since_its_record_changed(
    first: Lease | None, second: Lease | None, holder: str, free_at: float
) -> None:
    """Read at 100 s and at 110 s."""
    seen = observe(observe(UNREAD, first, now=100.0), second, now=110.0)

    assert (seen.holder, seen.free_at) == (holder, free_at)
    assert seen.resource_version == (second.metadata.resource_version if second else "")
