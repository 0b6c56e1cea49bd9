"""Pods that wait for work that is done in slices, by namespace.

A change of a marker concerns all of its pods, and thousands of pods may change at once. Each pod waits once, whatever
number of changes concerns it. The queue holds the namespaces, so namespaces take turns, one slice each.

Source: client-go util/workqueue (dirty keys).
Differs: the keys of the queue are namespaces; a value says what to do with each pod.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from kruise_probe.api.meta import NamespacedName

V = TypeVar("V")

MARKER_DONE: Final = "\0"
"""Part of the key that follows the pods of a marker. No name of a pod contains it."""


class Backlog(Generic[V]):
    """First in, first out in each namespace. A marker is returned after all pods that were added before it."""

    def __init__(self) -> None:
        self._waiting: dict[str, OrderedDict[NamespacedName, V | None]] = {}

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._waiting

    def get(self, pod: NamespacedName) -> V | None:
        """What waits for a pod."""
        of_namespace = self._waiting.get(pod.namespace)
        return of_namespace.get(pod) if of_namespace is not None else None

    def put(self, pod: NamespacedName, value: V) -> None:
        """Add a pod, or replace its value; it keeps its place."""
        self._of(pod.namespace)[pod] = value

    def put_marker(self, marker: NamespacedName) -> None:
        """Return this marker after the pods that wait now."""
        of_namespace = self._of(marker.namespace)
        key = NamespacedName(marker.namespace, MARKER_DONE + marker.name)
        of_namespace[key] = None
        of_namespace.move_to_end(key)

    def discard(self, pod: NamespacedName) -> None:
        of_namespace = self._waiting.get(pod.namespace)
        if of_namespace is not None:
            of_namespace.pop(pod, None)

    def take(self, namespace: str, most: int) -> Iterator[tuple[NamespacedName, V | None]]:
        """Remove and yield at most so many: pods with their values, and markers with None."""
        for _ in range(most):
            of_namespace = self._waiting.get(namespace)
            if not of_namespace:
                self._waiting.pop(namespace, None)
                return
            key, value = of_namespace.popitem(last=False)
            if key.name.startswith(MARKER_DONE):
                key = NamespacedName(namespace, key.name.removeprefix(MARKER_DONE))
            if not of_namespace:
                del self._waiting[namespace]
            yield key, value

    def _of(self, namespace: str) -> OrderedDict[NamespacedName, V | None]:
        return self._waiting.setdefault(namespace, OrderedDict())
