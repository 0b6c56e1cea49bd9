"""Pods that wait for work that is done in slices, by namespace.

A change of a marker concerns all of its pods, and thousands of pods may change at once. Each pod waits once, whatever
number of changes concerns it. The queue holds the namespaces, so namespaces take turns, one slice each.

Source: client-go util/workqueue (dirty keys).
Differs: the keys of the queue are namespaces; a value says what to do with each pod.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.workqueue.turns import Turns


class Visit(NamedTuple):
    """What a change means for a pod that waits. It is counted in any case.

    Attributes:
        before: the markers as they were, which may have written marks to the pod.
        entry: its entry in the NodePodProbe may change.
        marks: its marks may change.
    """

    before: tuple[CompiledMarker, ...] = ()
    entry: bool = False
    marks: bool = False

    def and_also(self, later: "Visit") -> "Visit":
        if later == self:
            return self
        return Visit(
            self.before + later.before,
            self.entry or later.entry,
            self.marks or later.marks,
        )


COUNT: Final = Visit()
"""The pod may add something else to the counts of its markers; nothing else changes."""


class EndOfPods(NamedTuple):
    """Follows the pods of a marker."""

    marker: NamespacedName


class Backlog:
    """First in, first out in each namespace."""

    def __init__(self) -> None:
        self._waiting = Turns[NamespacedName | EndOfPods, Visit]()

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._waiting

    def put(self, pod: NamespacedName, visit: Visit) -> None:
        """Add a pod. One that waits already keeps its place."""
        waiting = self._waiting.get(pod.namespace)
        if waiting is not None and pod in waiting:
            earlier = waiting[pod]
            waiting[pod] = earlier.and_also(visit)
        else:
            self._waiting.push(pod.namespace, pod, visit)

    def put_end(self, marker: NamespacedName) -> None:
        """Return the end of this marker's pods after the pods that wait now."""
        end = EndOfPods(marker)
        self._remove(marker.namespace, end)
        self._waiting.push(marker.namespace, end, COUNT)

    def discard(self, pod: NamespacedName) -> None:
        self._remove(pod.namespace, pod)

    def take(
        self,
        namespace: str,
        most: int,
    ) -> Iterator[tuple[NamespacedName | EndOfPods, Visit]]:
        """Remove and yield at most so many."""
        for _ in range(most):
            if namespace not in self._waiting:
                return
            yield self._waiting.pop_first(namespace)

    def _remove(self, namespace: str, waiting: NamespacedName | EndOfPods) -> None:
        of_namespace = self._waiting.get(namespace)
        if of_namespace is not None and waiting in of_namespace:
            self._waiting.take(namespace, waiting)
