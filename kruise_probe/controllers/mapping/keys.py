"""The work queues that event handlers fill, and the rate at which the initial lists fill them."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from kruise_probe.api.keys import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.markers.pace import CensusPace
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue

INITIAL_KEYS_PER_SECOND: Final = 5000.0
"""Rate at which keys of the initial lists are enqueued. Takes a quarter of the CPU when there is nothing to write."""

GATHER_SECONDS: Final = 0.05
"""Delay of `enqueue_node_after`. A plan covers all pods of the node, so changes of several pods share one reconcile."""


class Stagger:
    """Spreads keys over time, so that a large initial list does not hold up keys of new events."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def delay_seconds(self) -> float:
        now = asyncio.get_running_loop().time()
        self._next_at = max(self._next_at, now) + 1.0 / INITIAL_KEYS_PER_SECOND
        return self._next_at - now


class Keys(NamedTuple):
    """The work queues of all controllers."""

    pods: WorkQueue[NamespacedName]
    nodes: WorkQueue[str]
    agents: WorkQueue[str]
    census: CensusPace
    stagger: Stagger

    def pod(self, key: NamespacedName, initial: bool = False) -> None:
        """Enqueues a pod."""
        if initial:
            self.pods.add_after(key, self.stagger.delay_seconds(), Priority.LOW)
        else:
            self.pods.add(key)

    def node(self, name: str, initial: bool = False) -> None:
        """Enqueues a node; ignores an empty name."""
        if not name:
            return
        if initial:
            self.nodes.add_after(name, self.stagger.delay_seconds(), Priority.LOW)
        else:
            self.nodes.add(name)

    def enqueue_node_after(self, name: str) -> None:
        """Enqueues a node after GATHER_SECONDS; changes of its pods within that time are deduplicated."""
        if name:
            self.nodes.add_after(name, GATHER_SECONDS)

    def enqueue_marker_status(self, markers: Iterable[CompiledMarker]) -> None:
        """Enqueues markers for a status update. Markers being deleted skip the pause: the finalizer may go now."""
        for each in markers:
            if each.deleting:
                self.census.at_once(each.key)
            else:
                self.census.request(each.key)
