"""What a new manager inherits about the daemons from the previous one, before it reconciles anything.

By itself it would need `STALE_SECONDS` to find again that a daemon is silent, and would apply its last results meanwhile.

- A pod with a condition of ours that says so makes its daemon silent at once (`events.PodEvents`), unless the Lease has been renewed
  since: the condition of a pod that terminates is not updated.
- A marker's message lists a few nodes only, so it is not parsed. If a marker reports silent daemons, those of its nodes whose
  Lease looks expired are doubted: the clock of the node wrote that time, so it is no proof.
- A node is without a daemon if all markers on it report such nodes, and none has written a status or a Lease.

Source: no counterpart.
Differs: nothing.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.times import parse_time
from kruise_probe.controllers.causes import NO_DAEMON
from kruise_probe.controllers.conditions import DEGRADED
from kruise_probe.controllers.daemon_leases import STALE_SECONDS, Daemon, is_outlived
from kruise_probe.controllers.state import State


def inherit_daemons(state: State) -> None:
    """Record which daemons are silent, doubted or absent."""
    now = state.now()
    absent = _reporting(state, {NO_DAEMON})
    silent = _reporting(state, {NO_DAEMON, REASON_DAEMON_STALE})  # NoDaemon hides the other reason
    for node, daemon in state.leases.daemons.items():
        if not daemon.is_first_sight:
            continue
        if daemon.renewed:
            _inherit_silence(state, node, daemon, silent, now)
        elif absent:
            _inherit_absence(state, node, daemon, absent, now)


def _inherit_silence(
    state: State,
    node: str,
    daemon: Daemon,
    reporting: Collection[NamespacedName],
    now: datetime,
) -> None:
    if not daemon.silent and not reporting:
        return
    if not _is_past(daemon.renewed, now):
        daemon.silent = False
        return
    if daemon.silent or is_outlived(state.node_pod_probe(node), daemon.renewed):
        return
    markers = state.node_index.markers_on(node)
    daemon.doubted = any(marker in reporting for marker in markers)


def _inherit_absence(
    state: State,
    node: str,
    daemon: Daemon,
    reporting: Collection[NamespacedName],
    now: datetime,
) -> None:
    stored = state.node_pod_probe(node)
    if stored is None or not _has_never_reported(stored, now):
        return
    markers = state.node_index.markers_on(node)
    if markers and all(marker in reporting for marker in markers):
        daemon.silent = True


def _has_never_reported(stored: NodePodProbe, now: datetime) -> bool:
    """Whether no daemon has written the status of a NodePodProbe that was created long ago."""
    return stored.status is None and _is_past(stored.metadata.creation_timestamp, now)


def _is_past(time: str | None, now: datetime) -> bool:
    """Whether a time is more than `STALE_SECONDS` ago."""
    at = parse_time(time)
    return at is not None and now - at > timedelta(seconds=STALE_SECONDS)


def _reporting(state: State, reasons: Collection[str]) -> set[NamespacedName]:
    """The markers that are Degraded for one of these reasons."""
    found = set()
    for marker in state.markers.list():
        for condition in marker.conditions:
            if condition.type != DEGRADED or condition.status != "True":
                continue
            if condition.reason in reasons:
                found.add(marker.key)
    return found
