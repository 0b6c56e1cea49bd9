"""Pods that wait for work that is done in slices, by namespace.

A change of a marker concerns all of its pods, and thousands of pods may change at once. Each pod waits once, whatever
number of changes concerns it. The queue holds the namespaces, so namespaces take turns, one slice each.

Source: client-go util/workqueue (dirty keys).
Differs: the keys of the queue are namespaces; a value says what to do with each pod.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from kruise_probe.api.meta import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker


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
        self._waiting: dict[str, OrderedDict[NamespacedName | EndOfPods, Visit]] = {}

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._waiting

    def put(self, pod: NamespacedName, visit: Visit) -> None:
        """Add a pod. One that waits already keeps its place."""
        waiting = self._of(pod.namespace)
        known = waiting.get(pod)
        if known is not None:
            visit = known.and_also(visit)
        waiting[pod] = visit

    def put_end(self, marker: NamespacedName) -> None:
        """Return the end of this marker's pods after the pods that wait now."""
        waiting = self._of(marker.namespace)
        waiting[EndOfPods(marker)] = COUNT
        waiting.move_to_end(EndOfPods(marker))

    def discard(self, pod: NamespacedName) -> None:
        if pod.namespace in self._waiting:
            self._waiting[pod.namespace].pop(pod, None)

    def take(
        self,
        namespace: str,
        most: int,
    ) -> Iterator[tuple[NamespacedName | EndOfPods, Visit]]:
        """Remove and yield at most so many."""
        for _ in range(most):
            waiting = self._waiting.get(namespace)
            if not waiting:
                self._waiting.pop(namespace, None)
                return
            found = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[namespace]
            yield found

    def _of(self, namespace: str) -> OrderedDict[NamespacedName | EndOfPods, Visit]:
        return self._waiting.setdefault(namespace, OrderedDict())
