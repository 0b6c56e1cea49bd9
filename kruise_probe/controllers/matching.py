"""Indexes of markers and pods: which markers match which pods, in both directions, and which pods carry which of our marks.

Each selector has an anchor: one label key and the values that it requires. Markers are indexed by their anchor, and
pods by the anchor keys of all markers. So a lookup only compares pods and markers that share a label.

A namespace has few different sets of marks that we own, as `managedFields` shows. So the search for stale marks of a marker
checks each set, not each pod.

Source: no counterpart.
Differs: Kruise lists the pods of a namespace by selector for each marker, and does not track its own marks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import NOTHING_OWNED, Owned, Pod
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.informers.mutation_cache import MutationCache

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
    """The pods that carry our marks, by namespace and by set of marks.

    `written` holds the responses to patches that the informer does not show yet.
    """

    def __init__(self, written: MutationCache[Pod]) -> None:
        self._pods: dict[str, dict[Owned, dict[NamespacedName, Pod]]] = {}
        self._written = written

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
        """The pods with a mark of ours that `marker` names, under any owner. Includes our newest writes."""
        for owned, pods in self._pods.get(marker.key.namespace, {}).items():
            if not owned.isdisjoint(marker.marks):
                yield from pods.values()
        for pod in self._written.unseen():
            if pod.namespace == marker.key.namespace and not pod.owned.isdisjoint(marker.marks):
                yield pod
