"""What a new manager takes over about the daemons of the nodes from the previous one, before it reconciles anything.

A restart is no sign of life. By itself this manager would need `STALE_SECONDS` to find again that a daemon is silent, and would
apply its last results meanwhile. What conditions of pods say of a silent daemon is recorded by `events.PodEvents`; here it is what
the conditions of markers say, which name no node in a form to rely on.

Source: no counterpart.
Differs: nothing.
"""

from datetime import timedelta

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import REASON_DAEMON_STALE
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.times import parse_time
from kruise_probe.controllers.causes import NO_DAEMON
from kruise_probe.controllers.daemon_leases import STALE_SECONDS
from kruise_probe.controllers.state import State


def take_over_daemons(state: State) -> None:
    """Record the nodes without a daemon as such, and doubt those whose Lease has expired, if the markers on them report it."""
    stale = _reporting(state, REASON_DAEMON_STALE)
    without_daemon = _reporting(state, NO_DAEMON)
    if not stale and not without_daemon:
        return
    for stored in state.node_pod_probes.list():
        node = stored.key.name
        markers = state.node_index.markers_on(node)
        if not markers:
            continue
        if not stale.isdisjoint(markers):
            state.leases.recall_doubt(node, state.now())
        if without_daemon.issuperset(markers) and _is_old(state, stored):
            state.leases.recall_absent(node)


def _reporting(state: State, reason: str) -> set[NamespacedName]:
    """The markers with a condition of this reason."""
    found = set()
    for marker in state.markers.list():
        for condition in marker.conditions:
            if condition.reason == reason:
                found.add(marker.key)
    return found


def _is_old(state: State, stored: NodePodProbe) -> bool:
    """Whether a NodePodProbe was created long ago, and no daemon has written its status yet."""
    created_at = parse_time(stored.metadata.creation_timestamp)
    if stored.status is not None or created_at is None:
        return False
    return state.now() - created_at > timedelta(seconds=STALE_SECONDS)
