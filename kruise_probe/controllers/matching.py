"""Index of which markers match which pods, in both directions.

Each selector has an anchor: one label key and the values that it requires. Markers are indexed by their anchor, and
pods by the anchor keys of all markers. So a lookup only compares pods and markers that share a label.

Source: no counterpart.
Differs: Kruise lists the pods of a namespace by selector for each marker.
"""

from collections.abc import Callable, Iterable, Mapping

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.compiled import CompiledMarker

AllPods = Callable[[], Iterable[Pod]]
_Item = tuple[str, str]


class Matching:
    """The markers of each pod, and the pods of each marker. `all_pods` returns every pod: a new anchor key indexes them."""

    def __init__(self, all_pods: AllPods) -> None:
        self._all_pods = all_pods
        self._markers: dict[NamespacedName, CompiledMarker] = {}
        self._deleting: dict[str, dict[NamespacedName, CompiledMarker]] = {}
        self._by_anchor: dict[str, dict[_Item, tuple[CompiledMarker, ...]]] = {}
        self._without_anchor: dict[str, dict[NamespacedName, CompiledMarker]] = {}
        self._pods: dict[tuple[str, str], dict[str, dict[NamespacedName, Pod]]] = {}
        self._anchored: dict[tuple[str, str], int] = {}
        """By namespace and label key, the number of markers with that anchor key: without any, its index is removed."""

    @property
    def markers(self) -> Mapping[NamespacedName, CompiledMarker]:
        return self._markers

    def deleting(self, namespace: str) -> Mapping[NamespacedName, CompiledMarker]:
        """The markers of a namespace that are being deleted."""
        return self._deleting.get(namespace, {})

    @property
    def all_deleting(self) -> Mapping[NamespacedName, CompiledMarker]:
        """The markers of all namespaces that are being deleted."""
        return {key: marker for each in self._deleting.values() for key, marker in each.items()}

    def markers_of(self, pod: Pod) -> tuple[CompiledMarker, ...]:
        """The markers that match `pod`, including those being deleted, ordered by `CompiledMarker.order`."""
        candidates = list(self._without_anchor.get(pod.namespace, {}).values())
        by_anchor = self._by_anchor.get(pod.namespace)
        if by_anchor:
            for item in pod.labels.items():
                candidates += by_anchor.get(item, ())
        found = [marker for marker in candidates if marker.selector.matches(pod.labels)]
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
        self._markers[marker.key] = marker
        if marker.deleting:
            self._deleting.setdefault(namespace, {})[marker.key] = marker
        if anchor is not None:
            by_anchor = self._by_anchor.setdefault(namespace, {})
            for item in _items(anchor):
                by_anchor[item] = (*by_anchor.get(item, ()), marker)
        else:
            self._without_anchor.setdefault(namespace, {})[marker.key] = marker

    def remove_marker(self, key: NamespacedName) -> None:
        """Remove a marker, if there is one."""
        marker = self._markers.pop(key, None)
        if marker is None:
            return
        _drop(self._deleting, key)
        _drop(self._without_anchor, key)
        anchor = marker.selector.anchor
        if anchor is not None:
            self._remove_anchor(key, anchor)

    def _remove_anchor(self, key: NamespacedName, anchor: tuple[str, frozenset[str]]) -> None:
        by_anchor = self._by_anchor.get(key.namespace, {})
        for item in _items(anchor):
            left = tuple(marker for marker in by_anchor[item] if marker.key != key)
            if left:
                by_anchor[item] = left
            else:
                del by_anchor[item]
        if not by_anchor:
            self._by_anchor.pop(key.namespace, None)
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


def _items(anchor: tuple[str, frozenset[str]]) -> Iterable[_Item]:
    key, values = anchor
    return ((key, value) for value in values)


def _drop(
    by_namespace: dict[str, dict[NamespacedName, CompiledMarker]], key: NamespacedName
) -> None:
    of_namespace = by_namespace.get(key.namespace, {})
    of_namespace.pop(key, None)
    if not of_namespace:
        by_namespace.pop(key.namespace, None)
