"""The work queues of all controllers: events and reconciles enqueue keys here.

Source: controller-runtime pkg/handler; Kruise's event handlers.
Differs: the keys of initial lists are spread over time. The status of a marker is updated once a second at most.
"""

import asyncio
import math
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue

MARKER_CONTROLLER: Final = "podprobemarker"
NODE_CONTROLLER: Final = "nodepodprobe"
POD_CONTROLLER: Final = "podmarks"
LEASE_CONTROLLER: Final = "agents"

INITIAL_KEYS_PER_SECOND: Final = 5000.0
"""Rate at which keys of the initial lists are enqueued. Takes a quarter of the CPU when there is nothing to write."""

GATHER_SECONDS: Final = 0.05
"""Delay of `enqueue_node_after`. A plan covers all pods of the node, so changes of several pods share one reconcile."""

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
            name=POD_CONTROLLER, group_of=_namespace_of
        )
        self.nodes: Final[WorkQueue[str]] = WorkQueue(name=NODE_CONTROLLER)
        self.markers: Final[WorkQueue[NamespacedName]] = WorkQueue(
            name=MARKER_CONTROLLER, group_of=_namespace_of
        )
        self.leases: Final[WorkQueue[str]] = WorkQueue(name=LEASE_CONTROLLER)
        self.status_throttle: Final = StatusThrottle(self.markers)
        self._next_initial_at = -math.inf

    def enqueue_pod(
        self,
        key: NamespacedName,
        priority: Priority = Priority.NORMAL,
        *,
        initial: bool = False,
    ) -> None:
        """Enqueue a pod. Keys of an initial list or a resync are spread over time, at LOW priority."""
        if initial:
            self.pods.add_after(key, self._take_initial_delay(), Priority.LOW)
        else:
            self.pods.add(key, priority)

    def enqueue_node(self, name: str, *, initial: bool = False) -> None:
        """Enqueue a node; ignore an empty name."""
        if not name:
            return
        if initial:
            self.nodes.add_after(name, self._take_initial_delay(), Priority.LOW)
        else:
            self.nodes.add(name)

    def enqueue_node_after(self, name: str) -> None:
        """Enqueue a node after GATHER_SECONDS; changes of its pods within that time are deduplicated."""
        if name:
            self.nodes.add_after(name, GATHER_SECONDS)

    def enqueue_lease(self, node: str, priority: Priority = Priority.NORMAL) -> None:
        """Enqueue the check whether the results of a node are stale."""
        self.leases.add(node, priority)

    def enqueue_marker(self, key: NamespacedName) -> None:
        """Enqueue a marker without delay: after its creation, deletion or edit."""
        self.markers.add(key)

    def enqueue_marker_status(self, key: NamespacedName, *, initial: bool = False) -> None:
        """Enqueue a status update, after the pause since the last one."""
        delay_seconds = self._take_initial_delay() if initial else 0.0
        self.status_throttle.enqueue(key, delay_seconds=delay_seconds)

    def enqueue_status_of(self, markers: Iterable[CompiledMarker]) -> None:
        """Enqueue status updates. Markers being deleted are enqueued at once: the finalizer may be removed now."""
        for each in markers:
            if each.deleting:
                self.enqueue_marker(each.key)
            else:
                self.enqueue_marker_status(each.key)

    def _take_initial_delay(self) -> float:
        """Reserve the next place of INITIAL_KEYS_PER_SECOND; return the seconds until then.

        So a large list does not delay new events.
        """
        now = asyncio.get_running_loop().time()
        self._next_initial_at = max(self._next_initial_at, now) + 1.0 / INITIAL_KEYS_PER_SECOND
        return self._next_initial_at - now


class StatusThrottle:
    """Rate limit of the status updates of each marker: once a second, and at most 2 % of the CPU."""

    def __init__(self, queue: WorkQueue[NamespacedName]) -> None:
        self._queue = queue
        self._waiting: set[NamespacedName] = set()
        self._not_before: dict[NamespacedName, float] = {}

    def enqueue(self, key: NamespacedName, *, delay_seconds: float) -> None:
        """Enqueue a marker after the pause or the delay, whichever is longer. Deduplicated until `started`."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        self._queue.add_after(
            key,
            max(self.pause_left(key), delay_seconds),
            Priority.LOW if delay_seconds else Priority.NORMAL,
        )

    def started(self, key: NamespacedName) -> None:
        """Record the start of a reconcile: changes from now on enqueue the marker again."""
        self._waiting.discard(key)

    def finished(self, key: NamespacedName, seconds: float) -> None:
        """Record the end of a status update that took `seconds`."""
        pause = max(STATUS_INTERVAL_SECONDS, seconds * STATUS_PAUSE_PER_SECOND)
        self._not_before[key] = asyncio.get_running_loop().time() + pause

    def pause_left(self, key: NamespacedName) -> float:
        """Seconds of the pause after the last status update; 0.0 if it is over, within the tolerance of timers."""
        left = self._not_before.get(key, -math.inf) - asyncio.get_running_loop().time()
        return left if left > CLOCK_SLACK_SECONDS else 0.0

    def forget(self, key: NamespacedName) -> None:
        """Remove a deleted marker."""
        self._waiting.discard(key)
        self._not_before.pop(key, None)
