"""The Lease record of leader election: how a candidate reads it, and what it writes. Pure functions.

Source: client-go tools/leaderelection/leaderelection.go and resourcelock/leaselock.go.
Differs: writes are merge patches with a resourceVersion, so fields of others stay on the Lease; a deleted Lease
counts as held until its last observed term has ended.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from kruise_probe.api.core import Lease, LeaseSpec
from kruise_probe.api.keys import NamespacedName
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


class Candidate(NamedTuple):
    """The identity that is written as holder, and the lease duration."""

    identity: str
    duration_seconds: int

    def creation(self, key: NamespacedName, at: datetime) -> bytes:
        """The body that creates the Lease."""
        return msgspec.json.encode(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": key.name, "namespace": key.namespace},
                "spec": self._spec(acquired_at=at, renewed_at=at, transitions=0),
            }
        )

    def acquisition(self, observed: Observation, at: datetime) -> bytes:
        """A patch that acquires the Lease if it has not changed since it was observed."""
        transitions = (observed.spec.lease_transitions or 0) + 1
        return _patch(observed, self._spec(acquired_at=at, renewed_at=at, transitions=transitions))

    def renewal(self, observed: Observation, at: datetime) -> bytes:
        """A patch that renews our own term."""
        return _patch(observed, self._spec(renewed_at=at))

    def _spec(
        self,
        *,
        renewed_at: datetime,
        acquired_at: datetime | None = None,
        transitions: int | None = None,
    ) -> LeaseSpec:
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self.duration_seconds,
            acquire_time=format_micro_time(acquired_at) if acquired_at else None,
            renew_time=format_micro_time(renewed_at),
            lease_transitions=transitions,
        )


def release(observed: Observation, at: datetime) -> bytes:
    """A patch that clears the holder, so that any candidate may acquire the Lease."""
    stamp = format_micro_time(at)
    return _patch(
        observed,
        LeaseSpec(
            holder_identity="", lease_duration_seconds=1, acquire_time=stamp, renew_time=stamp
        ),
    )


def _patch(observed: Observation, spec: LeaseSpec) -> bytes:
    """Build a patch with the observed resourceVersion, so that it conflicts with any write in between."""
    return msgspec.json.encode(
        {"metadata": {"resourceVersion": observed.resource_version}, "spec": spec}
    )
