"""The Leases of the daemons, by the manager's clock. `daemon_reconciler` decides whether the results of a node are stale.

Each daemon renews a Lease. Its results are stale once the Lease has expired. Kruise's daemon has no Lease. If one of ours is
left on its node, its newer results, which have no hash of their probe, prove that it works.

Source: kubernetes pkg/controller/nodelifecycle (probeTimestamp, Lease of the node).
Differs: uses the daemon's own Lease and results instead of the Node's conditions. renewTime is a stamp of the node's clock, so
a renewal counts from when the manager sees it.
"""

from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, NamedTuple

from kruise_probe.api.core import Lease
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import NodePodProbeStatus

DEFAULT_LEASE_SECONDS: Final = 60

FIRST_SIGHT: Final = timedelta(seconds=20)
"""Two renewal periods. In this time a daemon that works renews a Lease that the manager sees for the first time."""


class Verdict(Enum):
    """What is known of the results of a node."""

    FRESH = auto()
    UNDECIDED = auto()
    STALE = auto()


class Renewal(NamedTuple):
    """The last observed renewal of a daemon's Lease.

    Attributes:
        renewed: renewTime of the Lease as text, for messages.
        renewed_at: renewTime, parsed; a time of the node's clock.
        counts_from: the time of the renewal on our own clock.
        undecided_until: before this time the expiry proves nothing.
        duration: the duration of the Lease.
    """

    renewed: str
    renewed_at: datetime
    counts_from: datetime
    undecided_until: datetime
    duration: timedelta

    @property
    def expires_at(self) -> datetime:
        """When the Lease expires, by our own clock."""
        return self.counts_from + self.duration

    def is_outlived(self, result_at: datetime | None) -> bool:
        """Whether a result is newer than the expiry. Compares two stamps of the node's clock, so skew has no effect."""
        return result_at is not None and result_at - self.renewed_at > self.duration


def observed_renewal(lease: Lease, previous: Renewal | None, now: datetime) -> Renewal | None:
    """Read a Lease; return None if it was never renewed.

    A newer renewal counts from `now`. A Lease that is seen for the first time, or whose stamp was set back, counts from its
    stamp: the daemon may have ended long ago. Until `undecided_until`, the clock of the node may as well be behind.
    """
    spec = lease.spec
    renewed_at = parse_time(spec.renew_time) if spec else None
    if spec is None or renewed_at is None:
        return None
    counts_from, undecided_until = min(renewed_at, now), now + FIRST_SIGHT
    if previous is not None and renewed_at > previous.renewed_at:
        counts_from = undecided_until = now
    elif previous is not None and renewed_at == previous.renewed_at:
        counts_from, undecided_until = previous.counts_from, previous.undecided_until
    duration = timedelta(seconds=max(spec.lease_duration_seconds or DEFAULT_LEASE_SECONDS, 1))
    return Renewal(spec.renew_time or "", renewed_at, counts_from, undecided_until, duration)


def newest_result_without_hash(status: NodePodProbeStatus | None, now: datetime) -> datetime | None:
    """The newest `lastProbeTime` of Kruise's daemon; None if there is none. A stamp of the future proves nothing."""
    stamps = [
        stamp
        for pod in (status and status.pod_probe_statuses) or ()
        for state in pod.probe_states or ()
        if not state.probe_hash
        and (stamp := parse_time(state.last_probe_time)) is not None
        and stamp <= now
    ]
    return max(stamps, default=None)


def why_stale(node: str, renewal: Renewal) -> str:
    """Why the results of the node are stale. The message does not change while they are."""
    return (
        f"The daemon on node {node} has not renewed its Lease since {renewal.renewed}, so its last results may be out of "
        "date. Check the kruise-probe-daemon pod on this node, and the node itself."
    )


class DaemonLeases:
    """The newest renewal of each daemon, by node, and the last verdict on it."""

    def __init__(self) -> None:
        self.renewals: Final[dict[str, Renewal]] = {}
        """By node. After its Lease is deleted a node has none: it may now run Kruise's daemon."""
        self.doubted: Final[dict[str, Verdict]] = {}
        """By node, the verdicts that are not FRESH; only this class writes it."""

    def why_stale(self, node: str) -> str:
        """Why the results of the node are stale, whose verdict is STALE; an empty string once its Lease is deleted."""
        renewal = self.renewals.get(node)
        return why_stale(node, renewal) if renewal is not None else ""

    def observe(self, node: str, lease: Lease, now: datetime) -> None:
        """Record a Lease. Nothing is decided here, but if it has expired, the node is undecided at once."""
        renewal = observed_renewal(lease, self.renewals.get(node), now)
        if renewal is not None:
            self.renewals[node] = renewal
            if renewal.expires_at <= now:
                self.doubted.setdefault(node, Verdict.UNDECIDED)

    def decide(self, node: str, verdict: Verdict) -> bool:
        """Record the verdict; return whether it changed."""
        if verdict is self.doubted.get(node, Verdict.FRESH):
            return False
        if verdict is Verdict.FRESH:
            del self.doubted[node]
        else:
            self.doubted[node] = verdict
        return True
