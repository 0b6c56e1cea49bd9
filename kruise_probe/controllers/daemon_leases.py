"""Signs of life of the daemons, by the manager's loop clock. `daemon_reconciler` decides which daemons are silent.

A sign of life is a renewal of the daemon's Lease or a write of its node's status. It counts from when the manager sees it, so
no step of a clock, of a node or of the manager, makes a daemon silent. What is seen for the first time counts as a sign too.
At the start of a manager such a step may let a daemon be doubted, see `Liveness`.

Kruise's daemon has no Lease. If one of ours is left on its node, a result without a hash of its probe that arrives while
that Lease is not renewed shows that Kruise's daemon took over; then nothing is stale until our Lease is renewed again.

Source: client-go tools/leaderelection (observedTime); kubernetes pkg/controller/nodelifecycle (probeTimestamp).
Differs: a write of the node's status counts as a renewal does.
"""

from datetime import timedelta
from enum import Enum, auto
from itertools import groupby
from typing import Final

import msgspec

from kruise_probe.api.core import Lease
from kruise_probe.api.messages import MAX_MESSAGE_BYTES
from kruise_probe.api.node_pod_probe import ContainerProbeState, NodePodProbe
from kruise_probe.api.times import parse_time

STALE_SECONDS: Final = 60.0
"""A daemon with entries that shows no life for this long is silent. It renews its Lease more often, see `daemon.heartbeat`."""

RECALL_SECONDS: Final = 50.0
"""A standby that saw a sign of life within this time ignores a condition that says the daemon is silent: it is an old one. It sees
signs of life a bit earlier or later than the leader."""

HOLDERS: Final = 8
"""How many renewals of a Lease show whether one process renews it, or two in turns, one of them twice as often."""
RETURNS: Final = 3
"""Two processes renew a Lease if they came back so often after the other. During a rolling update each does at most once."""


class Liveness(Enum):
    """What is known of the daemon of a node.

    DOUBTED: the Lease looks expired, and the previous manager reported silent daemons. Until the next sign of life, or until
    it is STALE, conditions and marks are left unchanged.
    ABSENT: the node has entries, and never had a Lease or a status.
    """

    ALIVE = auto()
    DOUBTED = auto()
    STALE = auto()
    ABSENT = auto()


Findings = tuple[Liveness, tuple[str, ...]]
"""What pods and markers show of a daemon: the liveness, and the processes that renew its Lease in turns."""


class Daemon(msgspec.Struct):
    """What the manager has seen of the daemon of a node.

    Attributes:
        counts_from: loop time of the last sign of life.
        renewal_seen_at: loop time at which the last renewal was seen, or else the Lease for the first time.
        renewed: renewTime of the Lease as text; empty if it had none.
        leased: the Lease exists.
        is_first_sight: no sign of life was seen since the manager started.
        silent: no sign of life for STALE_SECONDS, seen by this manager or by the previous one.
        doubted: see `Liveness`.
        kruises: Kruise's daemon writes the results of this node.
        holders: of the last renewals, once another process than the first renewed the Lease.
        stale_message: why results are stale, as a condition says that another manager wrote; for a daemon without a Lease.
    """

    counts_from: float
    renewal_seen_at: float = 0.0
    renewed: str = ""
    leased: bool = False
    is_first_sight: bool = True
    silent: bool = False
    doubted: bool = False
    kruises: bool = False
    holders: tuple[str, ...] = ()
    stale_message: str = ""

    @property
    def liveness(self) -> Liveness:
        if not self.silent:
            return Liveness.DOUBTED if self.doubted else Liveness.ALIVE
        if self.renewed or self.stale_message:
            return Liveness.STALE
        return Liveness.ABSENT

    @property
    def findings(self) -> Findings:
        return self.liveness, self.two_holders

    @property
    def two_holders(self) -> tuple[str, ...]:
        """The processes that renew the Lease in turns; empty if it is one, or if one replaced another."""
        if not self.holders:  # the common case
            return ()
        turns = [holder for holder, _ in groupby(self.holders)]
        processes = set(turns)
        returns = len(turns) - len(processes)
        if returns < RETURNS:
            return ()
        in_order = sorted(processes)
        return tuple(in_order)

    def show_life(self, now: float) -> None:
        self.counts_from = now
        self.is_first_sight = False
        self.silent = False
        self.doubted = False
        self.stale_message = ""


class DaemonLeases:
    """The daemons by node. Methods that record something return whether the daemon must be reconciled now.

    A daemon that is alive has a timer, so most signs of life need no reconcile.
    """

    def __init__(self) -> None:
        self.daemons: Final[dict[str, Daemon]] = {}

    def findings(self, node: str) -> Findings:
        daemon = self.daemons.get(node)
        if daemon is None:
            return Liveness.ALIVE, ()
        return daemon.findings

    def two_holders(self, node: str) -> tuple[str, ...]:
        daemon = self.daemons.get(node)
        if daemon is None:
            return ()
        return daemon.two_holders

    def why_stale(self, node: str) -> str:
        """Why the results of the node are stale; an empty string if they are not."""
        daemon = self.daemons.get(node)
        if daemon is None:
            return ""
        if daemon.liveness not in (Liveness.STALE, Liveness.DOUBTED):
            return ""
        if not daemon.renewed:
            return daemon.stale_message
        what = silence(node, daemon.renewed)  # the same as long as they are stale
        return f"{what}. Check the node, and read the log of its kruise-probe-daemon pod."

    def observe_lease(
        self,
        node: str,
        lease: Lease,
        now: float,
        *,
        is_initial: bool = False,
    ) -> bool:
        """Record a Lease. Another renewTime than before is a renewal, whether it is later or earlier.

        `is_initial`: the Lease is in the first list, so it may have been renewed long ago.
        """
        renewed = lease.spec.renew_time
        if not renewed:
            return False
        daemon = self._known(node, now)
        before = daemon.findings
        needs_timer = daemon.kruises or not daemon.renewed
        daemon.leased = True
        if renewed != daemon.renewed:
            daemon.renewed = renewed
            daemon.renewal_seen_at = now
            daemon.kruises = False
            _add_holder(daemon, lease.holder)
            if not is_initial:
                daemon.show_life(now)
        if needs_timer:
            return True
        return daemon.findings != before

    def forget_lease(self, node: str, stored: NodePodProbe | None) -> None:
        """Record that the Lease is gone. What was known of the daemon stays: it may have ended.

        If Kruise's daemon already wrote the stored results, somebody removed the Lease because it replaced ours.
        """
        daemon = self.daemons.get(node)
        if daemon is None:
            return
        daemon.leased = False
        if stored is None or daemon.silent:
            return
        if kruises_results(stored):
            daemon.kruises = True
            daemon.doubted = False

    def observe_status(
        self,
        node: str,
        stored: NodePodProbe,
        now: float,
    ) -> bool:
        """Record a write of the node's status. Without a Lease, there is nothing to decide about a daemon that reports."""
        daemon = self.daemons.get(node)
        if daemon is None:
            return False
        is_renewed = daemon.leased and now - daemon.renewal_seen_at < STALE_SECONDS
        if not is_renewed and kruises_results(stored):
            daemon.kruises = True
        was_silent = daemon.silent
        daemon.show_life(now)
        return was_silent

    def observe_first_entry(self, node: str, now: float) -> None:
        """Record the first entry of a node that had none: a daemon without entries need not show any life."""
        daemon = self._known(node, now)
        if not daemon.silent:
            daemon.counts_from = now

    def recall_stale(
        self,
        node: str,
        message: str,
        now: float,
    ) -> None:
        """Record that a condition says that the daemon is silent. It is until it shows life.

        Others may write conditions as we do, so a text that is not ours has no effect.
        """
        if len(message) > MAX_MESSAGE_BYTES or not message.startswith(_silence_of(node)):
            return
        daemon = self._known(node, now)
        has_shown_life = not daemon.is_first_sight
        if has_shown_life and now - daemon.counts_from < RECALL_SECONDS:
            return
        daemon.silent = True
        daemon.stale_message = message

    def _known(self, node: str, now: float) -> Daemon:
        daemon = self.daemons.get(node)
        if daemon is None:
            daemon = self.daemons[node] = Daemon(now)
        return daemon

    def drop(self, node: str) -> None:
        """Drop a daemon whose Node is gone. A Lease that is left may be that of the next Node of this name."""
        daemon = self.daemons.get(node)
        if daemon is not None and not daemon.leased:
            del self.daemons[node]


def _add_holder(daemon: Daemon, holder: str) -> None:
    is_alone = {*daemon.holders} == {holder}
    if not is_alone:
        earlier = daemon.holders[1 - HOLDERS :]
        daemon.holders = (*earlier, holder)


def is_outlived(stored: NodePodProbe | None, renewed: str) -> bool:
    """Whether Kruise's daemon reported after our Lease had expired. Compares two stamps of the node, so skew has no effect.

    Only for the first sight of both: a step of the node's clock between them would decide.
    """
    renewed_at = parse_time(renewed)
    if stored is None or renewed_at is None:
        return False
    expired_at = renewed_at + timedelta(seconds=STALE_SECONDS)
    for state in kruises_results(stored):
        probed_at = parse_time(state.last_probe_time)
        if probed_at is None:
            continue
        if probed_at > expired_at:
            return True
    return False


def kruises_results(stored: NodePodProbe) -> list[ContainerProbeState]:
    """The results of Kruise's daemon: they have no hash of their probe."""
    found: list[ContainerProbeState] = []
    for pod in stored.results:
        found += [state for state in pod.probe_states if not state.probe_hash]
    return found


def silence(node: str, renewed: str) -> str:
    return f"{_silence_of(node)} {renewed}, so its last results may be out of date"


def _silence_of(node: str) -> str:
    """How the text of a silent daemon begins."""
    return f"The daemon on node {node} has not renewed its Lease since"
