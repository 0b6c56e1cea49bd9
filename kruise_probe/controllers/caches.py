"""The manager's caches: five informers, and indexes derived from their stores.

`mapping` keeps the indexes up to date: for every event it first calls `index_*` or `remove_*`. So a reconcile finds what
it needs without a search. Nothing here decides or writes.

Source: controller-runtime pkg/cache; Kruise's listers.
Differs: keeps derived indexes beside the stores; reads our own writes before their events arrive.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from kruise_probe.api.core import Lease, Node
from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.api.resources import LEASES, MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.api.v1alpha1 import NodePodProbe, PodProbeMarker
from kruise_probe.controllers.compiled import CompiledMarker, compile_marker
from kruise_probe.controllers.daemon_leases import DaemonLeases
from kruise_probe.controllers.marked_pods import MarkedPods
from kruise_probe.controllers.matching import Matching
from kruise_probe.controllers.node_index import NodePodProbeIndex, ProbesChange
from kruise_probe.controllers.pods.claims import has_unowned_mark
from kruise_probe.controllers.serverless import is_virtual
from kruise_probe.informers.mutation_cache import MutationCache
from kruise_probe.informers.shared_informer import SharedInformer
from kruise_probe.manager.manager import Manager

BY_NODE: Final = "node"


def _node_of_pod(pod: Pod) -> tuple[str, ...]:
    return (pod.node,)


class Informers(NamedTuple):
    """One informer per kind. Pods and markers may be limited to one namespace; Leases are from the system namespace."""

    markers: SharedInformer[PodProbeMarker]
    pods: SharedInformer[Pod]
    nodes: SharedInformer[Node]
    node_pod_probes: SharedInformer[NodePodProbe]
    leases: SharedInformer[Lease]


def informers_of(manager: Manager, *, system_namespace: str) -> Informers:
    """Return the informers; the manager owns them."""
    informers = Informers(
        markers=manager.add_informer(MARKERS, manager.namespace),
        pods=manager.add_informer(PODS, manager.namespace),
        nodes=manager.add_informer(NODES),
        node_pod_probes=manager.add_informer(NODE_POD_PROBES),
        leases=manager.add_informer(LEASES, system_namespace),
    )
    informers.pods.add_index(BY_NODE, _node_of_pod)
    return informers


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
    ) -> None:
        self.namespace: Final = namespace
        self.pods: Final = MutationCache(informers.pods.lister)
        self.markers: Final = MutationCache(informers.markers.lister)
        self.node_pod_probes: Final = MutationCache(informers.node_pod_probes.lister)
        self.matching: Final = Matching(informers.pods.lister.list)
        self.marked: Final = MarkedPods(self.pods)
        self.leases: Final = DaemonLeases()
        self.node_index: Final = NodePodProbeIndex()
        self.ended: Final[dict[NamespacedName, tuple[CompiledMarker, ...]]] = {}
        """By pod, the markers as they were before they were edited, or did not select it any more, until it is reconciled.
        They tell which marks are ours if somebody emptied `managedFields`."""
        self._allowed_labels = allowed_labels
        self._marker_informer = informers.markers
        self._lease_informer = informers.leases
        self._pod_lister = informers.pods.lister
        self._node_lister = informers.nodes.lister

    @property
    def marker_watches(self) -> int:
        """Number of watches of markers so far. It changes whenever their CRD may have changed."""
        return self._marker_informer.watches

    def node(self, name: str) -> Node | None:
        return self._node_lister.get(NamespacedName("", name))

    def node_is_virtual(self, name: str) -> bool:
        return is_virtual(self.node(name))

    def pods_on(self, node: str) -> Collection[Pod]:
        return self._pod_lister.by_index(BY_NODE, node)

    def seconds_since_lease_outage(self) -> float:
        """Return the seconds since Leases could be read again after an outage; see `SharedInformer`."""
        return self._lease_informer.seconds_since_outage()

    def index_pod(self, old: Pod | None, new: Pod) -> None:
        """Index a new or changed pod."""
        self.matching.set_pod(old, new)
        self.marked.set_pod(old, new)
        self.pods.observe(new)

    def record_ended(self, pod: Pod, markers: Iterable[CompiledMarker]) -> None:
        """Record markers, as they were, that may not write to `pod` any more."""
        found = tuple(each for each in markers if has_unowned_mark(pod, each))
        if found:
            self.ended[pod.key] = (*self.ended.get(pod.key, ()), *found)

    def remove_pod(self, pod: Pod) -> None:
        self.ended.pop(pod.key, None)
        self.matching.remove_pod(pod)
        self.marked.remove_pod(pod)
        self.pods.observe_deletion(pod)

    def index_marker(self, marker: PodProbeMarker) -> tuple[CompiledMarker | None, CompiledMarker]:
        """Index a new marker, or one whose spec or deletion changed; return it before and after."""
        before = self.matching.markers.get(marker.key)
        after = self._compiled(marker)
        self.matching.set_marker(after)
        return before, after

    def remove_marker(self, marker: PodProbeMarker) -> tuple[CompiledMarker, list[Pod]]:
        """Remove a marker; return it and the pods that it matched."""
        removed = self.matching.markers[marker.key]
        pods = self.matching.pods_of(removed)  # while they are indexed for it
        self.matching.remove_marker(marker.key)
        self.markers.observe_deletion(marker)
        return removed, pods

    def _compiled(self, marker: PodProbeMarker) -> CompiledMarker:
        return compile_marker(marker, allowed_labels=self._allowed_labels)

    def index_node_pod_probe(self, old: NodePodProbe | None, new: NodePodProbe) -> ProbesChange:
        """Index a new or changed NodePodProbe."""
        self.node_pod_probes.observe(new)
        return self.node_index.update(old, new)

    def remove_node_pod_probe(self, last_known: NodePodProbe) -> ProbesChange:
        name = last_known.key.name
        self.node_pod_probes.observe_deletion(last_known)
        return self.node_index.remove(name)
