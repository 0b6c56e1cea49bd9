"""Which markers match which pods, found from either side without looking at all of the other.

Markers are filed under the label values that their selectors pin, pods under the label keys that some marker
pins. So a pod meets only markers that share a label with it, and a marker only pods that share one.

Source: no counterpart; Kruise lists the pods of a namespace by selector for each marker.
Differs: as said.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.pods import Pod
from kruise_probe.controllers.compiled import CompiledMarker

AllPods = Callable[[], Iterable[Pod]]
_Item = tuple[str, str]


class _Filed(NamedTuple):
    """`decided`: the label under which the marker is filed is all that it asks for."""

    marker: CompiledMarker
    decided: bool


class Matching:
    """An index in both directions. `all_pods` gives every pod, for the first look at a new label key."""

    def __init__(self, all_pods: AllPods) -> None:
        self._all_pods = all_pods
        self._markers: dict[NamespacedName, CompiledMarker] = {}
        self._deleting: dict[str, dict[NamespacedName, CompiledMarker]] = {}
        self._filed: dict[str, dict[_Item, tuple[_Filed, ...]]] = {}
        self._unfiled: dict[str, dict[NamespacedName, CompiledMarker]] = {}
        self._pods: dict[tuple[str, str], dict[str, dict[NamespacedName, Pod]]] = {}

    @property
    def markers(self) -> Mapping[NamespacedName, CompiledMarker]:
        return self._markers

    def deleting(self, namespace: str) -> Mapping[NamespacedName, CompiledMarker]:
        """The markers of a namespace that are being deleted."""
        return self._deleting.get(namespace, {})

    @property
    def all_deleting(self) -> Mapping[NamespacedName, CompiledMarker]:
        """The markers of all namespaces that are being deleted."""
        if not self._deleting:
            return {}
        return {key: marker for each in self._deleting.values() for key, marker in each.items()}

    def markers_of(self, pod: Pod) -> tuple[CompiledMarker, ...]:
        """The markers that match `pod`, those being deleted included, in their order."""
        found: list[CompiledMarker] = []
        filed = self._filed.get(pod.namespace)
        if filed:
            for item in pod.labels.items():
                for marker, decided in filed.get(item, ()):
                    if decided or marker.selector.matches(pod.labels):
                        found.append(marker)
        unfiled = self._unfiled.get(pod.namespace, {}).values()
        found += [marker for marker in unfiled if marker.selector.matches(pod.labels)]
        if len(found) > 1:
            found.sort(key=lambda each: each.order)
        return tuple(found)

    def pods_of(self, marker: CompiledMarker) -> list[Pod]:
        """The pods that `marker` matches."""
        anchor = marker.selector.anchor
        matches, namespace = marker.selector.matches, marker.key.namespace
        if anchor is None:
            return [
                pod
                for pod in (self._all_pods() if marker.selector.requirements else ())
                if pod.namespace == namespace and matches(pod.labels)
            ]
        key, values = anchor
        by_value = self._track(namespace, key)
        return [
            pod
            for value in values
            for pod in by_value.get(value, {}).values()
            if matches(pod.labels)
        ]

    def set_marker(self, marker: CompiledMarker) -> None:
        """Adds a marker, or replaces the one of the same key."""
        self.remove_marker(marker.key)
        self._markers[marker.key] = marker
        namespace = marker.key.namespace
        if marker.deleting:
            self._deleting.setdefault(namespace, {})[marker.key] = marker
        anchor = marker.selector.anchor
        if anchor is not None:
            filed = self._filed.setdefault(namespace, {})
            decided = len(marker.selector.requirements) == 1
            for item in _items(anchor):
                filed[item] = (*filed.get(item, ()), _Filed(marker, decided))
        elif marker.selector.requirements:
            self._unfiled.setdefault(namespace, {})[marker.key] = marker

    def remove_marker(self, key: NamespacedName) -> CompiledMarker | None:
        """Removes and returns a marker."""
        marker = self._markers.pop(key, None)
        if marker is None:
            return None
        _drop(self._deleting, key)
        _drop(self._unfiled, key)
        anchor = marker.selector.anchor
        filed = self._filed.get(key.namespace, {})
        for item in _items(anchor) if anchor is not None else ():
            left = tuple(each for each in filed[item] if each.marker.key != key)
            if left:
                filed[item] = left
            else:
                del filed[item]
        return marker

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        """Follows a pod that appeared or changed."""
        if not self._pods:
            return
        if old is not None and old.labels != new.labels:
            self.remove_pod(old)
        for label in new.labels:
            by_value = self._pods.get((new.namespace, label))
            if by_value is not None:
                by_value.setdefault(new.labels[label], {})[new.key] = new

    def remove_pod(self, pod: Pod) -> None:
        """Forgets a pod."""
        for label, value in pod.labels.items():
            by_value = self._pods.get((pod.namespace, label), {})
            found = by_value.get(value)
            if found is not None and found.pop(pod.key, None) is not None and not found:
                del by_value[value]

    def _track(self, namespace: str, label: str) -> dict[str, dict[NamespacedName, Pod]]:
        by_value = self._pods.get((namespace, label))
        if by_value is None:
            by_value = self._pods[namespace, label] = {}
            for pod in self._all_pods():
                if pod.namespace == namespace and label in pod.labels:
                    by_value.setdefault(pod.labels[label], {})[pod.key] = pod
        return by_value


def _items(anchor: tuple[str, frozenset[str]]) -> Iterable[_Item]:
    key, values = anchor
    return ((key, value) for value in values)


def _drop(
    by_namespace: dict[str, dict[NamespacedName, CompiledMarker]], key: NamespacedName
) -> None:
    of_namespace = by_namespace.get(key.namespace)
    if of_namespace is not None and of_namespace.pop(key, None) is not None and not of_namespace:
        del by_namespace[key.namespace]
