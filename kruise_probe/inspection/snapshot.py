"""All objects that the views are computed from, as they were at one time.

A kind that the user may not list is None; it is not treated as empty.
"""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, NamedTuple

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import (
    LEADER_ELECTION_ID,
    REASON_DAEMON_STALE,
    daemon_lease_name,
)
from kruise_probe.api.node_pod_probe import NodePodProbe
from kruise_probe.api.times import parse_time
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.budget import room_bytes
from kruise_probe.controllers.claims import Claim
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.daemon_leases import is_outlived, silence
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.node_index import NodePodProbeIndex
from kruise_probe.controllers.roles import carried
from kruise_probe.inspection.seen_pods import SeenPod

RECENT: Final = timedelta(seconds=5)
"""The manager may still be processing younger changes, so they are not reported as broken."""
LEASE_SECONDS: Final = 60
"""Duration of a Lease without one, and of that of a daemon with entries."""


class Renewal(NamedTuple):
    """When a Lease was renewed, by the stamp of the process that renewed it, and for how long."""

    renewed: str
    renewed_at: datetime
    duration: timedelta

    @property
    def expires_at(self) -> datetime:
        return self.renewed_at + self.duration


def renewal_of(lease: Lease | None) -> Renewal | None:
    """The renewal of a Lease; None if it was never renewed."""
    if lease is None:
        return None
    renewed = lease.spec.renew_time or ""
    renewed_at = parse_time(renewed)
    if renewed_at is None:
        return None
    seconds = lease.spec.lease_duration_seconds or LEASE_SECONDS
    duration = timedelta(seconds=seconds)
    return Renewal(renewed, renewed_at, duration)


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key that compares numbers in names by value: game-2 before game-10."""
    key: list[tuple[int, str]] = []
    for number, text in re.findall(r"([0-9]+)|([^0-9]+)", name):
        value = int(number or 0)
        key.append((value, text))
    return key


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The objects read; `markers` and `pods` of the requested namespaces. `allowed_labels` as the manager's flag.

    `pruned_fields` are those of probes that the CRD of NodePodProbes drops, as far as it may be read.
    """

    now: datetime
    markers: tuple[PodProbeMarker, ...]
    pods: tuple[SeenPod, ...]
    nodes: Mapping[str, Node] | None = None
    node_pod_probes: Mapping[str, NodePodProbe] | None = None
    leases: Mapping[str, Lease] | None = None
    allowed_labels: frozenset[str] = frozenset()
    pruned_fields: tuple[str, ...] = ()

    @cached_property
    def sources(self) -> Mapping[NamespacedName, PodProbeMarker]:
        return {marker.key: marker for marker in self.markers}

    @cached_property
    def compiled(self) -> Mapping[NamespacedName, CompiledMarker]:
        compiled = {}
        for marker in self.markers:
            compiled[marker.key] = compile_marker(
                marker,
                allowed_labels=self.allowed_labels,
                pruned_fields=self.pruned_fields,
            )
        return compiled

    def markers_in(self, namespace: str) -> list[CompiledMarker]:
        """The markers of a namespace, the oldest first."""
        compiled = self.compiled.values()
        found = [marker for marker in compiled if marker.key.namespace == namespace]
        found.sort(key=lambda marker: marker.order)
        return found

    @cached_property
    def pods_by_key(self) -> Mapping[NamespacedName, SeenPod]:
        return {pod.key: pod for pod in self.pods}

    def pods_in(self, namespace: str) -> list[SeenPod]:
        return [pod for pod in self.pods if pod.namespace == namespace]

    @cached_property
    def matching(self) -> Matching:
        """Which markers select which pods."""
        matching = Matching(self.pods_in)
        for marker in self.compiled.values():
            matching.set_marker(marker)
        return matching

    @cached_property
    def node_index(self) -> NodePodProbeIndex:
        """The entries and results of the NodePodProbes."""
        index = NodePodProbeIndex()
        if self.node_pod_probes is not None:
            for node_pod_probe in self.node_pod_probes.values():
                index.update(None, node_pod_probe)
        return index

    def room_bytes(self, node: str) -> int:
        """What may be added to the NodePodProbe of a node; nothing without one."""
        room = self._rooms.get(node)
        if room is None:
            known = self._report(node)
            room = 0
            if known is not None:
                room = room_bytes(known.spec.pod_probes)
            self._rooms[node] = room
        return room

    @cached_property
    def _rooms(self) -> dict[str, int]:
        return {}

    def node(self, name: str) -> Node | None:
        if self.nodes is None:
            return None
        return self.nodes.get(name)

    def is_virtual(self, pod: SeenPod) -> bool:
        """Whether the pod is on a virtual node; False if nodes may not be read."""
        node = self.node(pod.node)
        return node is not None and node.is_virtual

    def pods_of(self, marker: CompiledMarker) -> list[SeenPod]:
        """The pods that `marker` selects, sorted by name: game-2 before game-10."""
        found: list[SeenPod] = []
        for pod in self.matching.pods_of(marker):
            seen = self.pods_by_key[pod.key]
            found.append(seen)
        found.sort(key=lambda pod: natural_order(pod.name))
        return found

    def carriers(self, marker: CompiledMarker, pod: SeenPod, claim: Claim) -> list[str]:
        """The names of the pods that carry the marks of an exclusive probe, in the group of `pod`."""
        if claim.exclusive is None:
            return []
        label = claim.exclusive.group_label
        value = pod.labels.get(label, "")
        group = self.matching.group_of(marker, label, value)
        names = [other.name for other in group if carried(other, claim)]
        return sorted(names)

    @cached_property
    def _reported_stale(self) -> Set[str]:
        """The nodes whose results the manager reports as stale."""
        reported: set[str] = set()
        for pod in self.pods:
            for condition in pod.conditions:
                if condition.reason == REASON_DAEMON_STALE:
                    reported.add(pod.node)
        return reported

    def stale_reason(self, node: str) -> str:
        """Why the results of the node are stale, or empty.

        An expired stamp alone proves nothing if the node's clock is behind. A manager that leads has seen the renewals, so
        for one more duration of the Lease it decides, by what it reports. The Lease of a daemon that had no entries lasts
        for years, so an earlier report counts too.
        """
        is_reported = node in self._reported_stale
        renewal = self._renewal(daemon_lease_name(node))
        if renewal is None and is_reported:
            return f"The daemon on node {node} has no Lease, and the manager reports its results as stale"
        if renewal is None:
            return ""
        if is_reported:
            renewal = renewal._replace(duration=timedelta(seconds=LEASE_SECONDS))
        if self.now < renewal.expires_at:
            return ""
        report = self._report(node)
        if is_outlived(report, renewal.renewed):
            return ""
        manager_decides = self.leader and not self.manager_problem
        is_new = self.now < renewal.expires_at + renewal.duration
        if manager_decides and is_new and not is_reported:
            return ""
        return silence(node, renewal.renewed)

    def _renewal(self, lease_name: str) -> Renewal | None:
        return renewal_of(self._lease(lease_name))

    def _lease(self, name: str) -> Lease | None:
        if self.leases is None:
            return None
        return self.leases.get(name)

    def _report(self, node: str) -> NodePodProbe | None:
        if self.node_pod_probes is None:
            return None
        return self.node_pod_probes.get(node)

    def has_no_daemon(self, node: str) -> bool:
        """Whether the daemon of `node` has neither a Lease nor a result; False if these may not be read."""
        if self.leases is None or self.node_pod_probes is None:
            return False
        if daemon_lease_name(node) in self.leases:
            return False
        report = self._report(node)
        if report is None:
            return True
        has_results = any(pod.probe_states for pod in report.results)
        return not has_results

    @cached_property
    def leader(self) -> str:
        """The holder of the manager's Lease; empty if there is no such Lease, or if it may not be read."""
        lease = self._lease(LEADER_ELECTION_ID)
        if lease is None:
            return ""
        return lease.holder

    @cached_property
    def manager_problem(self) -> str:
        """That the manager's Lease has expired, or empty.

        A manager without leader election renews no Lease, so an expired one alone proves nothing.
        """
        renewal = self._renewal(LEADER_ELECTION_ID)
        if renewal is None or self.now < renewal.expires_at:
            return ""
        leader = self.leader or "none"
        return f"no manager has renewed its Lease since {renewal.renewed} (last leader: {leader})"

    def is_recent(self, *stamps: str | None, within: timedelta = RECENT) -> bool:
        """Whether the newest of `stamps` is so recent that the manager may still be processing it."""
        newest: datetime | None = None
        for stamp in stamps:
            at = parse_time(stamp)
            if at is not None and (newest is None or at > newest):
                newest = at
        if newest is None:
            return False
        return self.now - newest < within
