"""The state of the manager: stores of five informers, indexes of them, what reconcilers know that no object shows, and queues.

The event handlers call `index_*` and `remove_*` for every event, before they enqueue anything. So a reconcile finds what it
needs without a search. Nothing here decides or writes. Nothing is stored: after a restart the next reconciles record again
what they know.

Source: controller-runtime pkg/cache; Kruise's listers.
Differs: keeps derived indexes beside the stores; stores our own writes before their events arrive.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.node_pod_probe import NodePodProbe, PodProbe
from kruise_probe.api.pods import NOTHING_OWNED, Mark, Owned, Pod
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.times import loop_time
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.controllers.backlog import COUNT, Backlog
from kruise_probe.controllers.budget import NoRoom
from kruise_probe.controllers.claims import Claim, Claims, claims_of, unowned_marks
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker, key_of_marker
from kruise_probe.controllers.daemon_leases import DaemonLeases
from kruise_probe.controllers.foreign import (
    REMOVED,
    ForeignChange,
    ForeignChanges,
    foreign_changes,
)
from kruise_probe.controllers.known_node import KnownNode, results_of
from kruise_probe.controllers.marked_pods import EndingMarkers, MarkedPods
from kruise_probe.controllers.marking import PodResults
from kruise_probe.controllers.matching import Considered, Matching
from kruise_probe.controllers.node_index import NodePodProbeIndex
from kruise_probe.controllers.queues import Queues
from kruise_probe.controllers.refused import RefusedPods
from kruise_probe.controllers.role_fence import RoleFence
from kruise_probe.controllers.role_groups import RoleGroups
from kruise_probe.controllers.tallies import Tallies
from kruise_probe.controllers.writes import WritePacer
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.manager import Manager

BY_NODE: Final = "node"
BY_NAMESPACE: Final = "namespace"

COUNT_SECONDS: Final = 0.2
"""Delay of counting a pod, which is counted once for all of its changes in this time."""


class ManagerOptions(NamedTuple):
    """Options of the command line.

    Attributes:
        allowed_labels: reserved label keys that policies may write.
        serverless: gate `EnablePodProbeMarkerOnServerless`.
        own_node_reads: each node gets the right to read its own NodePodProbe.
        marker_workers, node_workers: concurrent reconciles of markers and of nodes.
        pod_workers: concurrent reconciles of pods; they keep as many requests in flight as the client allows.
        message_update_interval_seconds: between writes of one pod that change only messages, after a burst.
    """

    system_namespace: str
    allowed_labels: frozenset[str] = frozenset()
    serverless: bool = False
    own_node_reads: bool = False
    marker_workers: int = 4
    node_workers: int = 48
    pod_workers: int = 48
    message_update_interval_seconds: float = 10.0


class Informers(NamedTuple):
    """One informer per kind. Pods and markers may be limited to one namespace; Leases are from the system namespace."""

    markers: SharedInformer[PodProbeMarker]
    pods: SharedInformer[Pod]
    nodes: SharedInformer[Node]
    node_pod_probes: SharedInformer[NodePodProbe]
    leases: SharedInformer[Lease]


T = TypeVar("T")


class Altered(NamedTuple, Generic[T]):
    """What a reconciler wrote, and what the API server stored in its place: the CRD may prune or default fields."""

    sent: T
    stored: T


class WrittenSpec(NamedTuple):
    """What the node reconciler knows of the spec that it wrote.

    Attributes:
        error: of the last write, or empty.
        no_room: the probes that do not fit into the NodePodProbe.
        left_out: number of probes that a limit leaves out, by the limit's reason.
        altered: the entries, if the API server stores them differently.
    """

    error: str = ""
    no_room: NoRoom = MappingProxyType({})
    left_out: Mapping[str, int] = MappingProxyType({})
    altered: Altered[tuple[PodProbe, ...]] | None = None

    @property
    def is_altered(self) -> bool:
        return self.altered is not None


UNKNOWN_SPEC: Final = WrittenSpec()


class State:
    """The informers' stores, the indexes, the queues, and the results of writes.

    A non-empty `namespace` is the only namespace that this manager manages.
    """

    def __init__(self, manager: Manager, options: ManagerOptions) -> None:
        self.options: Final = options
        self.namespace: Final = manager.namespace
        self.now: Final = manager.now
        self.queues: Final = Queues()
        self.informers = informers = Informers(
            markers=manager.add_informer(MARKERS, manager.namespace),
            pods=manager.add_informer(PODS, manager.namespace),
            nodes=manager.add_informer(NODES),
            node_pod_probes=manager.add_informer(NODE_POD_PROBES),
            leases=manager.add_informer(LEASES, options.system_namespace),
        )
        informers.pods.lister.add_index(BY_NODE, attrgetter("node"))
        informers.pods.lister.add_index(BY_NAMESPACE, attrgetter("namespace"))
        self.pods: Final = informers.pods.lister
        self.markers: Final = informers.markers.lister
        self.node_pod_probes: Final = informers.node_pod_probes.lister
        self.matching: Final = Matching(partial(self.pods.by_index, BY_NAMESPACE))
        self.backlog: Final = Backlog()
        """Pods of changed markers, and pods that may add something else to the counts of their markers than they did."""
        self.tallies: Final = Tallies()
        self.ending: Final = EndingMarkers()
        self.marked: Final = MarkedPods()
        self.leases: Final = DaemonLeases()
        self.foreign: Final = ForeignChanges()
        self.removed: Final[dict[NamespacedName, set[Mark]]] = {}
        """By pod, until it is reconciled, marks that were removed; others removed those that the manager writes again."""
        self.node_index: Final = NodePodProbeIndex()
        self.pacer: Final = WritePacer(
            message_interval_seconds=options.message_update_interval_seconds
        )
        self.ended: Final[dict[NamespacedName, Owned]] = {}
        """By pod, until it is reconciled, the marks that no field manager owns and that a marker may have written before it was
        edited, or did not select the pod any more. They are ours: somebody emptied `managedFields`."""
        self.writing: Final[dict[NamespacedName, float]] = {}
        """By pod, the loop time since when a patch is in flight. It may write marks of a marker that was deleted meanwhile."""
        self.specs: Final[dict[str, WrittenSpec]] = {}
        """By node, since its first plan."""
        self.refused: Final = RefusedPods()
        self.pruned_fields: Collection[str] = ()
        """Those that the CRD of NodePodProbes drops, of probes; known before the first marker is indexed."""
        self._nodes = informers.nodes.lister
        self.role_fence: Final = RoleFence(self.pods)
        self.roles: Final = RoleGroups(
            fence=self.role_fence,
            matching=self.matching,
            look=self._look,
            refusal_of=self.refused.why,
            enqueue=self.queues.enqueue_pod,
        )

    def _look(self, pod: Pod) -> tuple[Claims, PodResults]:
        """The claims on a pod, and its results."""
        markers = self.matching.considered_of(pod)
        claims = claims_of(markers).on(pod)
        results = self.results_of(pod, markers)
        return claims, results

    def node(self, name: str) -> Node | None:
        return self._nodes.get(NamespacedName("", name))

    def node_pod_probe(self, node: str) -> NodePodProbe | None:
        return self.node_pod_probes.get(NamespacedName("", node))

    def pods_on(self, node: str) -> Collection[Pod]:
        return self.pods.by_index(BY_NODE, node)

    def enqueue_pods_on(self, node: str) -> None:
        """Enqueue all pods of a node and the status of their markers, and count the pods."""
        for pod in self.pods_on(node):
            considered = self.matching.considered_of(pod)
            if considered:
                self.queues.enqueue_pod(pod.key)
                self.recount(pod.key)
        self.enqueue_markers_on(node)

    def enqueue_markers_on(self, node: str) -> None:
        """Enqueue the status of all markers of the pods of a node."""
        for pod in self.pods_on(node):
            for marker in self.matching.considered_of(pod):
                self.queues.markers.add(marker.key)

    def recount(self, pod: NamespacedName) -> None:
        """Count a pod again after COUNT_SECONDS, and enqueue the markers whose counts changed."""
        if not self.queues.is_open:
            return
        self.backlog.put(pod, COUNT)
        visits = self.queues.visits
        if pod.namespace not in visits.delayed:
            visits.add_after(pod.namespace, COUNT_SECONDS)

    def end_visits(self, marker: NamespacedName) -> None:
        """Visit the pods that wait, then enqueue the status of a marker."""
        self.backlog.put_end(marker)
        self.queues.visits.add(marker.namespace)

    def observe_foreign(self, old: Pod, new: Pod) -> None:
        """Record what an update that is not ours changed of our marks."""
        if not self.queues.is_open:
            return  # A standby sees the writes of the leader.
        if not old.owned:
            return
        claims = claims_of(self.matching.considered_of(new))
        for change in foreign_changes(old, new, claims):
            mark = change.mark
            if change.by == REMOVED:  # It may be our own write, whose response has not arrived.
                removed = self.removed.setdefault(new.key, set())
                removed.add(mark)
            else:
                self.record_foreign(claims.owners[mark], change)

    def record_foreign(self, owner: Claim, change: ForeignChange) -> None:
        """Record a change of a mark of `owner`, for the status of its marker."""
        marker = key_of_marker(change.pod.namespace, owner.name)
        self.foreign.record(marker, change, loop_time())
        self.queues.markers.add(marker)

    def index_pod(self, old: Pod | None, new: Pod) -> None:
        """Index a new or changed pod."""
        self.matching.set_pod(old, new)
        self.marked.set_pod(old, new)

    def remove_pod(self, pod: Pod) -> None:
        key = pod.key
        self.removed.pop(key, None)
        self.matching.remove_pod(pod)
        self.marked.remove_pod(pod)
        self.pacer.forget(key)
        self.ended.pop(key, None)
        self.refused.forget(key)
        self.backlog.discard(key)
        self.roles.forget(pod)
        markers = self.tallies.remove_pod(pod.uid)
        self.queues.enqueue_status_of(markers)

    def record_ended(self, pod: Pod, markers: Iterable[CompiledMarker]) -> None:
        """Record the unowned marks of markers, as they were, that may not write to `pod` any more."""
        key = pod.key
        found = self.ended.get(key, NOTHING_OWNED)
        for marker in markers:
            found |= unowned_marks(pod, marker)
        if found:
            self.ended[key] = found

    def index_marker(self, marker: PodProbeMarker) -> tuple[CompiledMarker, list[Pod]]:
        """Index a new marker, or one whose spec or deletion changed. Return it and the pods for which others are considered now."""
        compiled = compile_marker(
            marker,
            allowed_labels=self.options.allowed_labels,
            pruned_fields=self.pruned_fields,
        )
        pods = self.matching.set_marker(compiled)
        if compiled.deleting:
            self.ending.add(compiled)
        self.roles.index_marker(compiled)
        return compiled, pods

    def remove_marker(self, marker: PodProbeMarker) -> tuple[CompiledMarker, list[Pod]]:
        """Remove a marker; return it and the pods for which it was considered."""
        key = marker.key
        removed = self.matching.markers[key]
        pods = self.matching.remove_marker(key)
        self.ending.discard(key)
        self.roles.markers.discard(key)
        self.tallies.forget_marker(key)
        return removed, pods

    def spec(self, node: str) -> WrittenSpec:
        return self.specs.get(node, UNKNOWN_SPEC)

    def known_node(self, name: str) -> KnownNode:
        """What all pods of a node have in common."""
        node = self.node(name)
        is_virtual = node is not None and node.is_virtual
        spec = self.specs.get(name)
        liveness, holders = self.leases.findings(name)
        return KnownNode(
            exists=node is not None,
            is_virtual=is_virtual,
            has_provider=is_virtual and self.options.serverless,
            view=self.node_index.view(name),
            no_room=None if spec is None else spec.no_room,
            is_altered=spec is not None and spec.is_altered,
            liveness=liveness,
            why_stale=self.leases.why_stale(name),
            has_two_daemons=bool(holders),
        )

    def results_of(self, pod: Pod, markers: Considered) -> PodResults:
        """The results of `pod`, for which `markers` are considered."""
        node = self.known_node(pod.node)
        return results_of(pod, markers, node)
