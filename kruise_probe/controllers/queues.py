"""The queues of the manager: one for each controller, and which of its keys are delayed.

Source: controller-runtime pkg/handler; Kruise's event handlers.
Differs: the keys of resyncs are spread over time.
"""

import math
from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import Final, TypeVar

from kruise_probe.api.meta import NamespacedName
from kruise_probe.api.times import loop_time
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.turns import Priority

K = TypeVar("K", bound=Hashable)

RESYNC_INTERVAL_SECONDS: Final = 1 / 5000
"""Interval at which keys of a resync are enqueued, so that workers with many ready keys do not block the event loop."""

GATHER_SECONDS: Final = 0.05
"""Delay of a node. A plan covers all pods of the node, so changes of several pods share one reconcile."""


class Queues:
    """One queue for each controller; closed until the manager leads, except `visits`. Call its methods within the running loop.

    Attributes:
        is_open: the manager leads.
    """

    def __init__(self) -> None:
        self.pods: Final = _queue_of_objects("podmarks")
        self.nodes: Final = WorkQueue[str](name="nodepodprobe", is_open=False)
        self.markers: Final = _queue_of_objects("podprobemarker")
        self.daemons: Final = WorkQueue[str](name="daemons", is_open=False)
        self.visits: Final = WorkQueue[str](name="podvisits")
        """Namespaces with pods that wait in the backlog."""
        self.is_open = False
        self._last_at = -math.inf
        """When the last key of a resync is added."""

    def open(self) -> None:
        self.is_open = True
        self.pods.is_open = True
        self.nodes.is_open = True
        self.markers.is_open = True
        self.daemons.is_open = True

    def enqueue_pod(self, key: NamespacedName, *, resynced: bool = False) -> None:
        if resynced:
            self._add_resynced(self.pods, key)
        else:
            self.pods.add(key)

    def enqueue_node(self, name: str, *, resynced: bool = False) -> None:
        """Enqueue a node after GATHER_SECONDS; ignore an empty name."""
        if not name:
            return
        if resynced:
            self._add_resynced(self.nodes, name)
        else:
            self.nodes.add_after(name, GATHER_SECONDS)

    def enqueue_status_of(self, markers: Iterable[NamespacedName]) -> None:
        """Enqueue markers whose status may change."""
        for marker in markers:
            self.markers.add(marker)

    def enqueue_ending(self, markers: Iterable[CompiledMarker]) -> None:
        """Enqueue markers being deleted: the finalizer may be removed now."""
        for marker in markers:
            self.markers.add_after(marker.key, GATHER_SECONDS)

    def _add_resynced(self, queue: WorkQueue[K], key: K) -> None:
        """Add a key at LOW priority, one of all queues in RESYNC_INTERVAL_SECONDS."""
        is_waiting = key in queue.dirty or key in queue.delayed
        if is_waiting or not queue.is_open:
            return
        now = loop_time()
        earliest = max(self._last_at, now)
        self._last_at = earliest + RESYNC_INTERVAL_SECONDS
        delay = self._last_at - now
        queue.add_after(key, delay, Priority.LOW)


def _queue_of_objects(name: str) -> WorkQueue[NamespacedName]:
    """A queue that serves namespaces in turn."""
    return WorkQueue(name=name, group_of=attrgetter("namespace"), is_open=False)
