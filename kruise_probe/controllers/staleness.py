"""Staleness of the results of a node's daemon.

Each daemon renews a Lease. Its results are stale once the Lease has expired and no result is newer than the expiry.
So a Kruise daemon is never stale: it has no Lease, or its results are newer than the Lease of our earlier daemon.

Source: kubernetes pkg/controller/nodelifecycle (probeTimestamp, Lease of the node).
Differs: uses the daemon's own Lease and results instead of the Node's conditions.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from kruise_probe.api.core import Lease
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import NodePodProbeStatus

DEFAULT_LEASE_SECONDS: Final = 60


class LeaseRenewal(NamedTuple):
    """The last observed renewal of a daemon's Lease.

    Attributes:
        renewed: renewTime of the Lease as text, for messages.
        renewed_at: renewTime, parsed; a time of the node's clock.
        counts_from: the time of the renewal on our own clock.
        duration: the duration of the Lease.
    """

    renewed: str
    renewed_at: datetime
    counts_from: datetime
    duration: timedelta

    @property
    def expires_at(self) -> datetime:
        """When the Lease expires, by our own clock."""
        return self.counts_from + self.duration

    def expired_before(self, result_at: datetime) -> bool:
        """Whether a result is newer than the expiry. Compares two stamps of the node's clock, so skew has no effect."""
        return result_at - self.renewed_at > self.duration


def observed_renewal(
    lease: Lease, previous: LeaseRenewal | None, now: datetime
) -> LeaseRenewal | None:
    """Read a Lease; return None if it was never renewed.

    renewTime is a stamp of the node's clock. A renewal newer than `previous` counts from `now`, our own clock, so
    that clock skew of the node has no effect. Any other Lease counts from its stamp, but never from the future. Those
    are a stamp that was set back, and a Lease that is observed for the first time. A daemon may have become stale
    before the manager was restarted. If its Lease counted from `now`, its old results would be valid again for one
    Lease duration.
    """
    spec = lease.spec
    renewed_at = parse_time(spec.renew_time) if spec else None
    if spec is None or renewed_at is None:
        return None
    counts_from = min(renewed_at, now)
    if previous is not None and renewed_at > previous.renewed_at:
        counts_from = now
    elif previous is not None and renewed_at == previous.renewed_at:
        counts_from = previous.counts_from
    duration = timedelta(seconds=max(spec.lease_duration_seconds or DEFAULT_LEASE_SECONDS, 1))
    return LeaseRenewal(spec.renew_time or "", renewed_at, counts_from, duration)


def newest_result_at(status: NodePodProbeStatus | None) -> datetime | None:
    """The newest `lastProbeTime` of a node; None if there is none."""
    stamps = [
        stamp
        for pod in (status and status.pod_probe_statuses) or ()
        for state in pod.probe_states or ()
        if (stamp := parse_time(state.last_probe_time)) is not None
    ]
    return max(stamps, default=None)


def stale_message(
    node: str, renewal: LeaseRenewal | None, newest: datetime | None, now: datetime
) -> str:
    """Return why the results of `node` are stale, or an empty string. The message is stable while they are stale.

    `newest` is the time of the node's newest result.
    """
    if renewal is None or now < renewal.expires_at:
        return ""
    if newest is not None and renewal.expired_before(newest):
        return ""
    return (
        f"The daemon on node {node} has not renewed its Lease since {renewal.renewed}, so its last results may be out of "
        "date. Check the kruise-probe-daemon pod on this node, and the node itself."
    )


class LeaseRenewals:
    """The newest renewal of the Lease of every daemon, by node, and when an event or a read last returned it."""

    def __init__(self) -> None:
        self._renewals: dict[str, LeaseRenewal] = {}
        self._observed_at: dict[str, datetime] = {}

    def observe(self, node: str, lease: Lease, now: datetime, *, is_current: bool = True) -> None:
        """Record a Lease from an event of the watch, or from a read. One that is not current shows no expiry."""
        renewal = observed_renewal(lease, self._renewals.get(node), now)
        if renewal is not None:
            self._renewals[node] = renewal
        if (
            node in self._renewals and is_current
        ):  # also if the Lease is malformed now, which is no renewal
            self._observed_at[node] = now

    def accept_expiry(self, node: str, now: datetime) -> None:
        """Record that the known Lease is the newest that can be read."""
        self._observed_at[node] = now

    def forget(self, node: str) -> None:
        """Remove the renewal of a deleted Lease: the node may now run a Kruise daemon, which has no Lease."""
        self._renewals.pop(node, None)
        self._observed_at.pop(node, None)

    def expiry_is_observed(self, node: str) -> bool:
        """Whether the Lease was observed after it had expired. Otherwise the watch may have missed a renewal."""
        observed_at = self._observed_at.get(node)
        return observed_at is not None and observed_at >= self._renewals[node].expires_at

    def get(self, node: str) -> LeaseRenewal | None:
        return self._renewals.get(node)


class StaleNodes:
    """The nodes whose results were found stale, so that their pods are enqueued once they are no longer stale.

    Bounded by the nodes. It may be outdated: decisions use `stale_message`.
    """

    def __init__(self) -> None:
        self._confirmed: set[str] = set()
        self._found: set[str] = set()

    def __contains__(self, node: str) -> bool:
        return node in self._confirmed or node in self._found

    def __len__(self) -> int:
        """Number of nodes that the last check confirmed."""
        return len(self._confirmed)

    def record(self, node: str) -> None:
        """Record that a reconcile found the node stale, or waits until that is decided."""
        self._found.add(node)

    def confirm(self, node: str, *, stale: bool) -> bool:
        """Record a check of the node. Return whether pods may show the opposite and must be enqueued."""
        if stale:
            changed = node not in self._confirmed
            self._confirmed.add(node)
            return changed
        changed = node in self
        self._confirmed.discard(node)
        self._found.discard(node)
        return changed
