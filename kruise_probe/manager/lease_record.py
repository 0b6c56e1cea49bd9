"""The Lease record of leader election: how a candidate reads it, and what it writes. Pure functions.

Source: client-go tools/leaderelection/leaderelection.go and resourcelock/leaselock.go.
Differs: writes are merge patches with a resourceVersion, so fields of others stay on the Lease; a deleted Lease
counts as held until its last observed term has ended.
"""

from datetime import datetime
from typing import NamedTuple

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.times import format_micro_time

_EMPTY = LeaseSpec()


class Observation(NamedTuple):
    """The Lease as last observed, and the loop time at which this process first observed that record.

    `resource_version` is empty if there is no Lease, or if it was deleted.
    """

    spec: LeaseSpec
    resource_version: str
    seen_at: float

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""

    @property
    def free_at(self) -> float:
        """The loop time from which the Lease may be acquired: at once if it has no holder."""
        if not self.holder:
            return self.seen_at
        return self.seen_at + float(self.spec.lease_duration_seconds or 0)


def observe(before: Observation | None, lease: Lease | None, now: float) -> Observation:
    """Return the observation after reading `lease` (None: it does not exist) at loop time `now`.

    Only a changed record starts a new term.
    """
    if lease is None:
        return before._replace(resource_version="") if before else Observation(_EMPTY, "", now)
    spec = lease.spec or _EMPTY
    version = lease.metadata.resource_version
    if before is not None and before.spec == spec:
        return before._replace(resource_version=version)
    return Observation(spec, version, now)


def next_term(
    observed: Observation, at: datetime, *, identity: str, duration_seconds: int
) -> LeaseSpec:
    """A new term of this holder; if it holds the Lease, a renewal, which keeps the time at which it was acquired."""
    spec, now = observed.spec, format_micro_time(at)
    renews = observed.holder == identity
    transitions = spec.lease_transitions
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=duration_seconds,
        acquire_time=spec.acquire_time if renews else now,
        renew_time=now,
        lease_transitions=0 if transitions is None else transitions + (not renews),
    )


def released(at: datetime) -> LeaseSpec:
    """No holder, so that any candidate may acquire the Lease."""
    now = format_micro_time(at)
    return LeaseSpec("", lease_duration_seconds=1, acquire_time=now, renew_time=now)
