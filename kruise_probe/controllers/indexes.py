"""Indexes: which markers match which pods, in both directions, which pods carry which of our marks, and the entries and results
of NodePodProbes by pod and by marker.

Each selector has an anchor: one label key and the values that it requires. Markers are indexed by their anchor, and
pods by the anchor keys of all markers. So a lookup only compares pods and markers that share a label.

A namespace has few different sets of marks that we own, as `managedFields` shows. So the search for stale marks of a marker
checks each set, not each pod.

The change of a pod's results is a new state, a first result, or only a new message. A probe that leaves the spec and is
added again starts over: its next result is a first result. So markers in a selector cycle never get the unlimited writes of
state changes.

Source: no counterpart.
Differs: Kruise lists the pods of a namespace by selector for each marker, and does not track its own marks.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.names import ProbeName
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.api.v1alpha1 import (
    ContainerProbeState,
    NodePodProbe,
    PodProbe,
    PodProbeStatus,
    ProbeState,
)
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.marking import States

AllPods = Callable[[], Iterable[Pod]]
_Item = tuple[str, str]


class Matching:
    """The markers of each pod, and the pods of each marker. `all_pods` returns every pod: a new anchor key indexes them."""

    def __init__(self, all_pods: AllPods) -> None:
        self._all_pods = all_pods
        self.markers: Final[dict[NamespacedName, CompiledMarker]] = {}
        self._deleting: dict[str, dict[NamespacedName, CompiledMarker]] = {}
        self._by_anchor: dict[str, dict[_Item | None, tuple[CompiledMarker, ...]]] = {}
        """By namespace and required label; under None are the selectors without an anchor."""
        self._pods: dict[tuple[str, str], dict[str, dict[NamespacedName, Pod]]] = {}
        self._anchored: dict[tuple[str, str], int] = {}
        """By namespace and label key, the number of markers with that anchor key: without any, its index is removed."""

    def deleting(self, namespace: str) -> Mapping[NamespacedName, CompiledMarker]:
        """The markers of a namespace that are being deleted."""
        return self._deleting.get(namespace, {})

    @property
    def all_deleting(self) -> Mapping[NamespacedName, CompiledMarker]:
        """The markers of all namespaces that are being deleted."""
        return {key: marker for each in self._deleting.values() for key, marker in each.items()}

    def markers_of(self, pod: Pod) -> tuple[CompiledMarker, ...]:
        """The markers that match `pod`, including those being deleted, ordered by `CompiledMarker.order`."""
        by_anchor = self._by_anchor.get(pod.namespace)
        if by_anchor is None:
            return ()
        candidates = [*by_anchor.get(None, ())]
        for item in pod.labels.items():
            candidates += by_anchor.get(item, ())
        found = [marker for marker in candidates if marker.selector.matches(pod.labels)]
        if len(found) > 1:
            found.sort(key=lambda marker: marker.order)
        return tuple(found)

    def pods_of(self, marker: CompiledMarker) -> list[Pod]:
        """The pods that `marker` matches."""
        anchor = marker.selector.anchor
        matches, namespace = marker.selector.matches, marker.key.namespace
        by_value = self._pods.get((namespace, anchor[0])) if anchor is not None else None
        if anchor is None or by_value is None:
            return [
                pod
                for pod in (self._all_pods() if marker.selector.requirements else ())
                if pod.namespace == namespace and matches(pod.labels)
            ]
        return [
            pod
            for value in anchor[1]
            for pod in by_value.get(value, {}).values()
            if matches(pod.labels)
        ]

    def set_marker(self, marker: CompiledMarker) -> None:
        """Add a marker, or replace the one of the same key."""
        namespace = marker.key.namespace
        anchor = marker.selector.anchor
        if anchor is not None:
            # Before the old marker is removed, so that an index which both need is kept.
            self._index_label(namespace, anchor[0])
        self.remove_marker(marker.key)
        self.markers[marker.key] = marker
        if marker.deleting:
            self._deleting.setdefault(namespace, {})[marker.key] = marker
        by_anchor = self._by_anchor.setdefault(namespace, {})
        for item in _items(anchor):
            by_anchor[item] = (*by_anchor.get(item, ()), marker)

    def remove_marker(self, key: NamespacedName) -> None:
        """Remove a marker, if there is one."""
        marker = self.markers.pop(key, None)
        if marker is None:
            return
        self._deleting.get(key.namespace, {}).pop(key, None)
        by_anchor, anchor = self._by_anchor[key.namespace], marker.selector.anchor
        for item in _items(anchor):
            by_anchor[item] = tuple(other for other in by_anchor[item] if other.key != key)
            if not by_anchor[item]:
                del by_anchor[item]
        if not by_anchor:
            del self._by_anchor[key.namespace]
            self._deleting.pop(key.namespace, None)
        if anchor is not None:
            label = (key.namespace, anchor[0])
            self._anchored[label] -= 1
            if not self._anchored[label]:
                del self._anchored[label], self._pods[label]

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        if old is not None and old.labels != new.labels:
            self.remove_pod(old)
        for label in new.labels:
            by_value = self._pods.get((new.namespace, label))
            if by_value is not None:
                by_value.setdefault(new.labels[label], {})[new.key] = new

    def remove_pod(self, pod: Pod) -> None:
        for label, value in pod.labels.items():
            by_value = self._pods.get((pod.namespace, label), {})
            found = by_value.get(value, {})
            found.pop(pod.key, None)
            if not found:
                by_value.pop(value, None)

    def _index_label(self, namespace: str, label: str) -> None:
        """Index the pods of the namespace by the values of the label, for one more marker."""
        self._anchored[namespace, label] = self._anchored.get((namespace, label), 0) + 1
        if (namespace, label) in self._pods:
            return
        by_value = self._pods[namespace, label] = {}
        for pod in self._all_pods():
            if pod.namespace == namespace and label in pod.labels:
                by_value.setdefault(pod.labels[label], {})[pod.key] = pod


def _items(anchor: tuple[str, frozenset[str]] | None) -> Iterable[_Item | None]:
    if anchor is None:
        return (None,)
    key, values = anchor
    return ((key, value) for value in values)


class MarkedPods:
    """The pods that carry our marks, by namespace and by set of marks."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[Owned, dict[NamespacedName, Pod]]] = {}

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        if old is not None:
            self.remove_pod(old)
        if new.owned is not NOTHING_OWNED:
            by_owned = self._pods.setdefault(new.namespace, {})
            by_owned.setdefault(new.owned, {})[new.key] = new

    def remove_pod(self, pod: Pod) -> None:
        by_owned = self._pods.get(pod.namespace, {})
        found = by_owned.get(pod.owned, {})
        found.pop(pod.key, None)
        if not found:
            by_owned.pop(pod.owned, None)

    def of_marker(self, marker: CompiledMarker) -> Iterator[Pod]:
        """The pods with a mark of ours that `marker` names, under any owner."""
        for owned, pods in self._pods.get(marker.key.namespace, {}).items():
            if not owned.isdisjoint(marker.marks):
                yield from pods.values()


PodIdentity = tuple[str, str, str]
"""Namespace, name and uid. A result belongs to a pod if all three are equal, as in Kruise."""

Statuses = Mapping[PodIdentity, PodProbeStatus]


class NodeView(NamedTuple):
    """A NodePodProbe indexed by pod: its entries (by uid) and the published results."""

    entries: Mapping[str, PodProbe]
    statuses: Statuses


_EMPTY_VIEW: Final = NodeView({}, {})


class PodResultChange(IntEnum):
    """The most important change in the results of one pod.

    MESSAGE: only messages changed, or a result was removed. FIRST_RESULT: a probe has its first result. STATE: a
    probe that stayed in the spec changed its state.
    """

    MESSAGE = 0
    FIRST_RESULT = 1
    STATE = 2


class ResultsChange(NamedTuple):
    """The most important change in the results of one pod.

    Attributes:
        edited: the probes with the first result of another handler.
        seen_at: the loop time of the first new state or result, once it is recorded; None without one, or for one by a
            serverless provider.
    """

    kind: PodResultChange
    edited: frozenset[str] = frozenset()
    seen_at: float | None = None


class ProbesChange(NamedTuple):
    """What an event of a NodePodProbe changed.

    Attributes:
        spec: whether the entries changed.
        pods: the pods of which a state or message changed. A newer time alone is no change.
        markers: the markers of all changed results, and of all entries if the spec changed.
    """

    spec: bool
    pods: Mapping[NamespacedName, ResultsChange]
    markers: frozenset[NamespacedName]


class NodePodProbeIndex:
    """The entries and results of all NodePodProbes. `update` and `remove` keep it up to date."""

    def __init__(self) -> None:
        self._views: dict[str, NodeView] = {}
        self._nodes_of_marker: dict[NamespacedName, set[str]] = {}

    def view(self, node: str) -> NodeView:
        """The indexed NodePodProbe of `node`; empty if there is none."""
        return self._views.get(node, _EMPTY_VIEW)

    def states_of(self, pod: Pod, markers: Iterable[CompiledMarker]) -> States:
        """The states that the node of `pod` published for it, without results of handlers that `markers` no longer have.

        So a new policy is not applied to the result of an old command, also if the marker was deleted and created
        again. Unknown is no result of a handler. With Kruise's daemon or CRD states have no hash, and all count.
        """
        view = self._views.get(pod.node, _EMPTY_VIEW)
        status = view.statuses.get((pod.namespace, pod.name, pod.uid))
        states = {each.name: each for each in (status and status.probe_states) or ()}
        for marker in markers if states else ():
            for probe in marker.probes:
                state = states.get(probe.name)
                if state is None or not state.probe_hash or state.state == ProbeState.UNKNOWN:
                    continue
                if state.probe_hash != probe.hash_on(pod):
                    del states[probe.name]
        return states

    def nodes_holding(self, marker: NamespacedName) -> Collection[str]:
        """The nodes whose NodePodProbe holds an entry of `marker`."""
        return self._nodes_of_marker.get(marker, ())

    def update(self, old: NodePodProbe | None, new: NodePodProbe) -> ProbesChange:
        """Index a new or changed NodePodProbe; return what changed."""
        name = new.metadata.name
        before = self._views.get(name, _EMPTY_VIEW)
        spec = old is None or old.spec != new.spec
        entries = {entry.uid: entry for entry in new.spec.pod_probes} if spec else before.entries
        statuses = {
            (status.namespace, status.name, status.uid): status
            for status in (new.status and new.status.pod_probe_statuses) or ()
        }
        self._views[name] = NodeView(entries, statuses)
        markers = self._index_entries(name, before.entries, entries) if spec else set()
        pods: dict[NamespacedName, ResultsChange] = {}
        for identity in {**before.statuses, **statuses}:
            old_status, status = before.statuses.get(identity), statuses.get(identity)
            if old_status == status:
                continue
            change, probes = _changed_results(old_status, status)
            for probe in probes:
                markers.add(NamespacedName(identity[0], ProbeName.parse(probe).marker))
            if probes and status is not None:
                pods[NamespacedName(status.namespace, status.name)] = change
        return ProbesChange(spec, pods, frozenset(markers))

    def remove(self, name: str) -> ProbesChange:
        """Remove the NodePodProbe of a node; return what changed."""
        before = self._views.pop(name, _EMPTY_VIEW)
        markers = self._index_entries(name, before.entries, {})
        return ProbesChange(spec=True, pods={}, markers=frozenset(markers))

    def _index_entries(
        self, node: str, before: Mapping[str, PodProbe], after: Mapping[str, PodProbe]
    ) -> set[NamespacedName]:
        """Index the node by the markers of its entries; return the markers of the old and the new entries."""
        old, new = _markers_of_entries(before), _markers_of_entries(after)
        for marker in old - new:
            nodes = self._nodes_of_marker[marker]
            nodes.discard(node)
            if not nodes:
                del self._nodes_of_marker[marker]
        for marker in new - old:
            self._nodes_of_marker.setdefault(marker, set()).add(node)
        return old | new


def _changed_results(
    before: PodProbeStatus | None, after: PodProbeStatus | None
) -> tuple[ResultsChange, list[str]]:
    """The change of one pod's results, and the probes with any: none if only times changed."""
    removed = {state.name: state for state in (before and before.probe_states) or ()}
    kind = PodResultChange.MESSAGE
    names: list[str] = []
    edited: list[str] = []
    for state in (after and after.probe_states) or ():
        previous = removed.pop(state.name, None)
        if previous is None:
            kind = max(kind, PodResultChange.FIRST_RESULT)
        elif previous.state != state.state:
            kind = PodResultChange.STATE
        elif _says_the_same(previous, state):
            continue
        names.append(state.name)
        known = previous and previous.probe_hash
        if known and state.probe_hash and known != state.probe_hash:
            edited.append(state.name)
    return ResultsChange(kind, frozenset(edited)), [*names, *removed]


def _says_the_same(before: ContainerProbeState, after: ContainerProbeState) -> bool:
    return (
        before.message == after.message
        and before.message_shortened == after.message_shortened
        and before.probe_hash == after.probe_hash
    )


def _markers_of_entries(entries: Mapping[str, PodProbe]) -> set[NamespacedName]:
    return {
        NamespacedName(entry.namespace, ProbeName.parse(probe.name).marker)
        for entry in entries.values()
        for probe in entry.probes
    }
