"""The manager's caches: five informers, and indexes derived from their stores.

`mapping` keeps the indexes up to date: it calls `follow_*` first for every event. So a reconcile finds what it needs
without a search. Nothing here decides or writes.

Source: controller-runtime pkg/cache; Kruise's listers.
Differs: keeps derived indexes beside the stores; reads our own writes before their events arrive.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.keys import NamespacedName, ProbeName
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import (
    LEASES,
    MARKERS,
    NODE_POD_PROBES,
    NODES,
    PODS,
)
from kruise_probe.api.v1alpha1 import (
    NodePodProbe,
    PodProbe,
    PodProbeMarker,
    PodProbeStatus,
)
from kruise_probe.client.rest import ResourceListerWatcher, RestClient
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.mutation_cache import MutationCache
from kruise_probe.controllers.pods.marking import States
from kruise_probe.controllers.residue import MarkedPods
from kruise_probe.controllers.result_changes import (
    NONE_LEFT,
    ProbeOfPod,
    ResultChange,
    left_spec,
    result_change,
    still_left,
)
from kruise_probe.controllers.selector_cycles import SelectorCycles
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.controllers.staleness import Heartbeats, newest_result_at, stale_message
from kruise_probe.informers.shared_informer import SharedInformer

BY_NODE: Final = "node"


def _node_of_pod(pod: Pod) -> tuple[str, ...]:
    return (pod.node,) if pod.node else ()


class Informers(NamedTuple):
    """One informer per kind. Pods and markers may be limited to one namespace; Leases are from the system namespace."""

    markers: SharedInformer[PodProbeMarker]
    pods: SharedInformer[Pod]
    nodes: SharedInformer[Node]
    node_pod_probes: SharedInformer[NodePodProbe]
    leases: SharedInformer[Lease]


def build_informers(
    client: RestClient, *, namespace: str, system_namespace: str, resync_seconds: float
) -> Informers:
    """Creates the informers over one client; an empty `namespace` means all namespaces."""

    def lister(resource: Any, of: str = "") -> Any:
        return ResourceListerWatcher(client, resource, namespace=of)

    return Informers(
        markers=SharedInformer(
            lister(MARKERS, namespace), name="podprobemarkers", resync_seconds=resync_seconds
        ),
        pods=SharedInformer(
            lister(PODS, namespace),
            name="pods",
            indexers={BY_NODE: _node_of_pod},
            resync_seconds=resync_seconds,
        ),
        nodes=SharedInformer(lister(NODES), name="nodes", resync_seconds=resync_seconds),
        node_pod_probes=SharedInformer(
            lister(NODE_POD_PROBES), name="nodepodprobes", resync_seconds=resync_seconds
        ),
        leases=SharedInformer(lister(LEASES, system_namespace), name="leases"),
    )


PodIdentity = tuple[str, str, str]
"""Namespace, name and uid. A result belongs to a pod if all three are equal, as in Kruise."""


class NodeView(NamedTuple):
    """A NodePodProbe indexed by pod: its entries (by uid) and the published results.

    `left` holds probes that left the spec and whose last state is still published.
    """

    entries: Mapping[str, PodProbe]
    statuses: Mapping[PodIdentity, PodProbeStatus]
    left: frozenset[ProbeOfPod] = NONE_LEFT


_EMPTY_VIEW: Final = NodeView({}, {})
_NO_STATES: Final[States] = {}


class ProbesChange(NamedTuple):
    """What an event of a NodePodProbe changed.

    Attributes:
        spec: whether the entries changed.
        pods: the pods of which a state or message changed, with the kind of change. A newer time alone is no change.
        markers: the markers of all changed entries and results.
    """

    spec: bool
    pods: Mapping[NamespacedName, ResultChange]
    markers: frozenset[NamespacedName]


class Caches:
    """The informers' stores, the indexes, and our own writes that the informers do not show yet.

    A non-empty `namespace` is the only namespace that this manager manages. `allowed_labels` are reserved label keys
    that policies may write.
    """

    def __init__(
        self,
        informers: Informers,
        *,
        namespace: str = "",
        allowed_labels: Collection[str] = (),
        now: Callable[[], datetime],
    ) -> None:
        self.namespace: Final = namespace
        self.pods: Final = MutationCache(informers.pods.indexer)
        self.markers: Final = MutationCache(informers.markers.indexer)
        self.node_pod_probes: Final = MutationCache(informers.node_pod_probes.indexer)
        self.matching: Final = Matching(informers.pods.indexer.list)
        self.marked: Final = MarkedPods(self.pods)
        self.cycles: Final = SelectorCycles()
        self.heartbeats: Final = Heartbeats()
        self.called_stale: Final[set[str]] = set()
        """Nodes whose results were found stale since their pods were last enqueued. That check may run before the timer
        of `agents` fires. `agents` uses this set to enqueue the pods when such a node is no longer stale."""
        self._allowed_labels = allowed_labels
        self._marker_informer = informers.markers
        self._pods = informers.pods.indexer
        self._nodes = informers.nodes.indexer
        self._node_pod_probes = informers.node_pod_probes.indexer
        self._views: dict[str, NodeView] = {}
        self._nodes_of_marker: dict[NamespacedName, set[str]] = {}
        self._newest: dict[str, tuple[str, datetime | None]] = {}
        self._now = now

    @property
    def marker_watches(self) -> int:
        """Number of watches of markers so far. It changes whenever their CRD may have changed."""
        return self._marker_informer.watches

    def node(self, name: str) -> Node | None:
        return self._nodes.get(NamespacedName("", name))

    def node_is_virtual(self, name: str) -> bool:
        return is_virtual(self.node(name))

    def pods_on(self, node: str) -> Collection[Pod]:
        return self._pods.by_index(BY_NODE, node)

    def view(self, node: str) -> NodeView:
        """The indexed NodePodProbe of `node`; empty if there is none."""
        return self._views.get(node, _EMPTY_VIEW)

    def states_of(self, pod: Pod) -> States:
        """The probe states that the node of `pod` published for it."""
        status = self.view(pod.node).statuses.get((pod.namespace, pod.name, pod.uid))
        if status is None or not status.probe_states:
            return _NO_STATES
        return {each.name: each for each in status.probe_states}

    def nodes_holding(self, marker: NamespacedName) -> Collection[str]:
        """The nodes whose NodePodProbe holds an entry of `marker`."""
        return self._nodes_of_marker.get(marker, ())

    def is_overdue(self, node: str) -> bool:
        """Whether the Lease of the node's agent has expired. Its newest result then decides whether it is stale."""
        beat = self.heartbeats.get(node)
        return beat is not None and self._now() >= beat.expires_at

    def stale_message(self, node: str) -> str:
        """Returns why the results of `node` are stale, or an empty string. Records a stale node in `called_stale`."""
        if not self.is_overdue(node):
            return ""
        beat, now = self.heartbeats.get(node), self._now()
        message = stale_message(node, beat, self._newest_result_at(node), now)
        if message:
            self.called_stale.add(node)
        return message

    def _newest_result_at(self, node: str) -> datetime | None:
        """Computed once per resourceVersion, as every pod of a stale node needs it."""
        found = self._node_pod_probes.get(NamespacedName("", node))
        if found is None:
            return None
        known = self._newest.get(node)
        if known is None or known[0] != found.resource_version:
            known = self._newest[node] = (found.resource_version, newest_result_at(found.status))
        return known[1]

    def follow_pod(self, old: Pod | None, new: Pod) -> bool:
        """Indexes a new or changed pod; returns True if the event only reports our own write."""
        self.matching.set_pod(old, new)
        self.marked.set_pod(old, new)
        return self.pods.is_echo(new)

    def follow_pod_deletion(self, pod: Pod) -> None:
        self.matching.remove_pod(pod)
        self.marked.remove_pod(pod)
        self.pods.deleted(pod)

    def follow_marker(self, marker: PodProbeMarker) -> tuple[CompiledMarker | None, CompiledMarker]:
        """Indexes a new marker, or one whose spec or deletion changed; returns it before and after."""
        before = self.matching.markers.get(marker.key)
        after = self._compiled(marker)
        self.matching.set_marker(after)
        self.cycles.set_marker(after)
        return before, after

    def follow_marker_deletion(self, marker: PodProbeMarker) -> CompiledMarker:
        self.markers.deleted(marker)
        self.cycles.remove_marker(marker.key)
        return self.matching.remove_marker(marker.key) or self._compiled(marker)

    def _compiled(self, marker: PodProbeMarker) -> CompiledMarker:
        return compile_marker(marker, allowed_labels=self._allowed_labels)

    def follow_node_pod_probe(self, old: NodePodProbe | None, new: NodePodProbe) -> ProbesChange:
        """Indexes a new or changed NodePodProbe."""
        name = new.key.name
        before = self.view(name)
        spec = old is None or _spec_differs(old, new)
        entries = {each.uid: each for each in new.spec.pod_probes or ()} if spec else before.entries
        statuses = {
            (each.namespace, each.name, each.uid): each
            for each in (new.status and new.status.pod_probe_statuses) or ()
        }
        left = before.left
        if spec:
            left |= left_spec(before.entries, entries)
        markers: set[NamespacedName] = set()
        if spec:
            markers |= self._index_entries(name, before.entries, entries)
        pods: dict[NamespacedName, ResultChange] = {}
        for identity, status in statuses.items():
            previous = before.statuses.get(identity)
            change = result_change(previous, status, left)
            if change is not None:
                pods[NamespacedName(status.namespace, status.name)] = change
                markers.update(_markers_of_states(status))
                if previous is not None:  # markers of removed states must update their counts
                    markers.update(_markers_of_states(previous))
        for identity, status in before.statuses.items():
            if identity not in statuses:
                markers.update(_markers_of_states(status))
        if left:
            left = still_left(left, before.statuses, statuses)
        self._views[name] = NodeView(entries, statuses, left)
        return ProbesChange(spec, pods, frozenset(markers))

    def follow_node_pod_probe_deletion(self, gone: NodePodProbe) -> ProbesChange:
        name = gone.key.name
        self.node_pod_probes.deleted(gone)
        self._newest.pop(name, None)
        before = self._views.pop(name, _EMPTY_VIEW)
        markers = self._index_entries(name, before.entries, {})
        return ProbesChange(spec=True, pods={}, markers=frozenset(markers))

    def _index_entries(
        self, node: str, before: Mapping[str, PodProbe], after: Mapping[str, PodProbe]
    ) -> set[NamespacedName]:
        """Indexes the node by the markers of its entries; returns the markers of the old and the new entries."""
        old, new = _markers_of_entries(before), _markers_of_entries(after)
        for marker in old - new:
            nodes = self._nodes_of_marker.get(marker)
            if nodes is not None:
                nodes.discard(node)
                if not nodes:
                    del self._nodes_of_marker[marker]
        for marker in new - old:
            self._nodes_of_marker.setdefault(marker, set()).add(node)
        return old | new


def _spec_differs(old: NodePodProbe, new: NodePodProbe) -> bool:
    generation = new.metadata.generation
    if generation is not None and generation == old.metadata.generation:
        return False
    return old.spec != new.spec


def _markers_of_entries(entries: Mapping[str, PodProbe]) -> set[NamespacedName]:
    return {
        NamespacedName(entry.namespace, ProbeName.parse(probe.name).marker)
        for entry in entries.values()
        for probe in entry.probes or ()
    }


def _markers_of_states(status: PodProbeStatus) -> set[NamespacedName]:
    return {
        NamespacedName(status.namespace, ProbeName.parse(each.name).marker)
        for each in status.probe_states or ()
    }
