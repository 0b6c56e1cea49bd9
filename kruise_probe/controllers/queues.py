"""The work queues of all controllers: events and reconciles enqueue keys here.

Source: controller-runtime pkg/handler; Kruise's event handlers.
Differs: the keys of initial lists are spread over time. The status of a marker is updated once a second at most.
"""

import asyncio
import math
from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import Final, TypeVar

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.workqueue.queue import Priority, WorkQueue

K = TypeVar("K", bound=Hashable)

INITIAL_KEYS_PER_SECOND: Final = 5000.0
"""Rate at which keys of the initial lists are enqueued, so that workers with many ready keys do not block the event loop."""

GATHER_SECONDS: Final = 0.05
"""Delay of a node. A plan covers all pods of the node, so changes of several pods share one reconcile."""

STATUS_INTERVAL_SECONDS: Final = 1.0
"""Minimum time between two status updates of one marker. Thousands of pods may change in it."""

STATUS_PAUSE_PER_SECOND: Final = 50.0
"""Pause after a status update, per second that it took: counting pods uses at most 2 % of the CPU."""

_namespace_of = attrgetter("namespace")
"""Group of a pod's or marker's key: the queues serve namespaces in turn."""


class Queues:
    """One queue for each controller. Call its methods within the running loop."""

    def __init__(self) -> None:
        self.pods: Final[WorkQueue[NamespacedName]] = WorkQueue(
            name="podmarks", group_of=_namespace_of
        )
        self.nodes: Final[WorkQueue[str]] = WorkQueue(name="nodepodprobe")
        self.markers: Final[WorkQueue[NamespacedName]] = WorkQueue(
            name="podprobemarker", group_of=_namespace_of
        )
        self.daemons: Final[WorkQueue[str]] = WorkQueue(name="daemons")
        self._next_initial_at = -math.inf
        self._status_not_before: dict[NamespacedName, float] = {}

    def enqueue_pod(self, key: NamespacedName, *, initial: bool = False) -> None:
        """Enqueue a pod. Keys of an initial list or a resync are spread over time, at LOW priority."""
        self._enqueue(self.pods, key, 0.0, initial)

    def enqueue_node(self, name: str, *, initial: bool = False) -> None:
        """Enqueue a node after GATHER_SECONDS; ignore an empty name."""
        if name:
            self._enqueue(self.nodes, name, GATHER_SECONDS, initial)

    def enqueue_marker_status(self, key: NamespacedName, *, initial: bool = False) -> None:
        """Enqueue a status update, after the pause since the last one."""
        self._enqueue(self.markers, key, self.status_pause_left(key), initial)

    def enqueue_status_of(self, markers: Iterable[CompiledMarker]) -> None:
        """Enqueue status updates. Markers being deleted are enqueued at once: the finalizer may be removed now."""
        for marker in markers:
            pause = 0.0 if marker.deleting else self.status_pause_left(marker.key)
            self.markers.add_after(marker.key, pause)

    def record_status_update(self, key: NamespacedName, seconds: float) -> None:
        """Record the end of a status update that took `seconds`."""
        pause = max(STATUS_INTERVAL_SECONDS, seconds * STATUS_PAUSE_PER_SECOND)
        self._status_not_before[key] = asyncio.get_running_loop().time() + pause

    def status_pause_left(self, key: NamespacedName) -> float:
        """Seconds of the pause after the last status update; 0.0 if it is over, within the tolerance of timers."""
        now = asyncio.get_running_loop().time()
        left = self._status_not_before.get(key, -math.inf) - now
        return left if left > CLOCK_SLACK_SECONDS else 0.0

    def forget_status(self, key: NamespacedName) -> None:
        """Remove a deleted marker."""
        self._status_not_before.pop(key, None)

    def _enqueue(self, queue: WorkQueue[K], key: K, seconds: float, initial: bool) -> None:
        """Enqueue a key after `seconds`; a key of an initial list at LOW priority, in its place of INITIAL_KEYS_PER_SECOND."""
        if not initial:
            queue.add_after(key, seconds)
            return
        now = asyncio.get_running_loop().time()
        self._next_initial_at = max(self._next_initial_at, now) + 1.0 / INITIAL_KEYS_PER_SECOND
        queue.add_after(key, self._next_initial_at - now, Priority.LOW)
