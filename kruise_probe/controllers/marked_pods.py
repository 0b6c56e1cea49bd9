"""Which pods carry which of our marks, and which markers being deleted still have any.

A namespace has few different sets of marks that we own, as `managedFields` shows. So the search for stale marks of a marker
checks each set, not each pod.

Source: no counterpart.
Differs: Kruise lists the pods of a namespace by selector for each marker, and does not track its own marks.
"""

from collections.abc import Iterable

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.pods import Mark, Owned, Pod
from kruise_probe.controllers.buckets import Buckets
from kruise_probe.controllers.compiled import CompiledMarker


class MarkedPods:
    """The pods that carry our marks, by namespace and by set of marks."""

    def __init__(self) -> None:
        self._sets = Buckets[str, Owned]()
        self._pods = Buckets[tuple[str, Owned], NamespacedName]()

    def set_pod(self, old: Pod | None, new: Pod) -> None:
        if old is not None:
            if old.owned == new.owned:
                return
            self.remove_pod(old)
        if new.owned:
            marks = (new.namespace, new.owned)
            self._sets.add(*marks)
            self._pods.add(marks, new.key)

    def remove_pod(self, pod: Pod) -> None:
        marks = (pod.namespace, pod.owned)
        self._pods.discard(marks, pod.key)
        if marks not in self._pods:
            self._sets.discard(*marks)

    def of_marker(self, marker: CompiledMarker) -> list[NamespacedName]:
        """The pods with a mark of ours that `marker` names, under any owner."""
        namespace = marker.key.namespace
        pods: list[NamespacedName] = []
        for owned in self._sets.of(namespace):
            if owned.isdisjoint(marker.marks):
                continue
            pods += self._pods.of((namespace, owned))
        return pods


class EndingMarkers:
    """The markers being deleted of which entries or marks are not removed yet, by namespace and mark.

    A marker that only finalizers of others keep is not one of them.
    """

    def __init__(self) -> None:
        self._markers: dict[NamespacedName, CompiledMarker] = {}
        self._in_namespace = Buckets[str, NamespacedName]()
        self._by_mark = Buckets[tuple[str, Mark], CompiledMarker]()

    def has_any(self, namespace: str) -> bool:
        return namespace in self._in_namespace

    def get(self, key: NamespacedName) -> CompiledMarker | None:
        return self._markers.get(key)

    def add(self, marker: CompiledMarker) -> None:
        """Add a marker, or replace the one of the same key."""
        key = marker.key
        self.discard(key)
        self._markers[key] = marker
        self._in_namespace.add(key.namespace, key)
        for mark in marker.marks:
            self._by_mark.add((key.namespace, mark), marker)

    def discard(self, key: NamespacedName) -> None:
        marker = self._markers.pop(key, None)
        if marker is None:
            return
        self._in_namespace.discard(key.namespace, key)
        for mark in marker.marks:
            self._by_mark.discard((key.namespace, mark), marker)

    def naming(self, namespace: str, marks: Iterable[Mark]) -> list[CompiledMarker]:
        """Those that name any of these marks, in a fixed order."""
        if not self.has_any(namespace):
            return []
        found: dict[CompiledMarker, None] = {}
        for mark in marks:
            naming = self._by_mark.of((namespace, mark))
            found |= dict.fromkeys(naming)
        return [*found]

    def selecting(self, pod: Pod) -> list[CompiledMarker]:
        """Those that select `pod` and name marks that it has."""
        if not self.has_any(pod.namespace):
            return []
        naming = self.naming(pod.namespace, pod.marks)
        return [marker for marker in naming if marker.selector.matches(pod.labels)]
