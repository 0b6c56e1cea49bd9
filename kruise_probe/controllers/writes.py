"""What reconcilers write with, and what they report to each other about their writes."""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.api.v1alpha1 import PodProbe
from kruise_probe.client.event_series import ObjectReference
from kruise_probe.client.interfaces import Creator, Deleter, Patcher
from kruise_probe.controllers.caches import Caches
from kruise_probe.controllers.limits import reported_without_room
from kruise_probe.controllers.nodes.budget import NoRoom
from kruise_probe.controllers.pods.patch import EVERY_MARKER

Refusals = Mapping[str, str]
"""By marker, why the API server refuses its changes of a pod."""

CATCH_UP_SECONDS: Final = 0.2
"""Requeue delay while the cache is behind the API server."""

NO_REFUSALS: Final[Refusals] = MappingProxyType({})


class Writer(Creator, Patcher, Deleter, Protocol):
    """What the reconcilers write with: a `RestClient`."""


class Recorder(Protocol):
    """Records events, such as `EventRecorder`."""

    def event(self, involved: ObjectReference, type: str, reason: str, message: str) -> None: ...


class NodeResult(NamedTuple):
    """Why the spec of a node is incomplete: an error, or limits.

    Attributes:
        error: of the last write, or empty.
        no_room: the probes that do not fit into the NodePodProbe.
        left_out: number of probes that a limit leaves out, by the limit's reason.
    """

    error: str
    no_room: NoRoom
    left_out: Mapping[str, int]


COMPLETE: Final = NodeResult("", {}, {})


class StoredEntries(NamedTuple):
    """The entries that were written, and what the API server stored for them."""

    written: tuple[PodProbe, ...]
    stored: tuple[PodProbe, ...]


class WriteResults:
    """Results of writes that no object shows.

    The node reconciler records errors, missing room and altered entries. The pod reconciler records refusals, and reads
    missing room. The marker reconciler reads everything. Nothing is stored: after a restart the next reconciles record
    the results again.
    """

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._nodes: dict[str, NodeResult] = {}
        self._planned: set[str] = set()
        self._altered: dict[str, StoredEntries] = {}
        self._refusals: dict[NamespacedName, Refusals] = {}

    def node(self, name: str) -> NodeResult:
        return self._nodes.get(name, COMPLETE)

    def node_errors(self) -> dict[str, str]:
        """The errors of the last writes, by node."""
        return {name: each.error for name, each in self._nodes.items() if each.error}

    def probes_left_out(self, reason: str) -> int:
        """Number of probes of all nodes that the limit with this reason leaves out."""
        return sum(each.left_out.get(reason, 0) for each in self._nodes.values())

    def altered(self, node: str) -> StoredEntries | None:
        """The entries of a node, if the API server stores them differently from what was written."""
        return self._altered.get(node)

    def no_room(self, pod: Pod) -> Collection[str]:
        """The names of the markers whose probes of `pod` do not fit into the NodePodProbe of its node.

        Until the first plan of the node after a restart, the pod's conditions provide them.
        """
        if pod.node in self._planned:
            return self.node(pod.node).no_room.get(pod.uid, ())
        entry = self._caches.node_index.view(pod.node).entries.get(pod.uid)
        running = [each.name for each in (entry.probes if entry else None) or ()]
        return reported_without_room(pod, self._caches.matching.markers_of(pod), running)

    def refusals(self, pods: Iterable[Pod], marker: str) -> dict[NamespacedName, str]:
        """The pods on which the API server refuses marks of `marker`, and why. Their writes are retried."""
        if not self._refusals:
            return {}
        refusals = ((pod.key, self._refusals.get(pod.key, NO_REFUSALS)) for pod in pods)
        return {
            key: why
            for key, of_pod in refusals
            if (why := of_pod.get(marker) or of_pod.get(EVERY_MARKER))
        }

    def set_node(self, name: str, result: NodeResult) -> None:
        if result == COMPLETE:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = result

    def set_planned(self, name: str, planned: bool) -> bool:
        """Record whether the node has a plan, which `no_room` then uses. Return whether this is its first plan."""
        first = planned and name not in self._planned
        if planned:
            self._planned.add(name)
        else:
            self._planned.discard(name)
        return first

    def set_altered(self, node: str, entries: StoredEntries | None) -> None:
        if entries is None:
            self._altered.pop(node, None)
        else:
            self._altered[node] = entries

    def set_refusals(self, pod: NamespacedName, refusals: Refusals) -> bool:
        """Return whether the refusals have changed."""
        if self._refusals.get(pod, NO_REFUSALS) == refusals:
            return False
        if refusals:
            self._refusals[pod] = refusals
        else:
            del self._refusals[pod]
        return True
