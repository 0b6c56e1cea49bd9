"""Where keys go, and how fast those of the initial lists do."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from kruise_probe.api.keys import NamespacedName
from kruise_probe.controllers.compiled import CompiledMarker
from kruise_probe.controllers.markers.pace import CensusPace
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.rate_limiting import WorkQueue

INITIAL_KEYS_PER_SECOND: Final = 5000.0
"""How fast what the initial lists bring is queued: a quarter of the CPU when nothing is to be written."""

GATHER_SECONDS: Final = 0.05
"""How long a node waits for more of its pods to lose their marks: its plan looks at all of them anyway."""


class Stagger:
    """Spreads keys over time, so that a large initial list leaves room for what happens meanwhile."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def delay_seconds(self) -> float:
        now = asyncio.get_running_loop().time()
        self._next_at = max(self._next_at, now) + 1.0 / INITIAL_KEYS_PER_SECOND
        return self._next_at - now


class Keys(NamedTuple):
    """Where keys go."""

    pods: WorkQueue[NamespacedName]
    nodes: WorkQueue[str]
    agents: WorkQueue[str]
    census: CensusPace
    stagger: Stagger

    def pod(self, key: NamespacedName, initial: bool = False) -> None:
        """Has the marks of a pod looked at."""
        if initial:
            self.pods.add_after(key, self.stagger.delay_seconds(), Priority.LOW)
        else:
            self.pods.add(key)

    def node(self, name: str, initial: bool = False) -> None:
        """Has the plan of a node looked at."""
        if not name:
            return
        if initial:
            self.nodes.add_after(name, self.stagger.delay_seconds(), Priority.LOW)
        else:
            self.nodes.add(name)

    def node_shortly(self, name: str) -> None:
        """Has the plan of a node looked at, once for all that happens to its pods about now."""
        if name:
            self.nodes.add_after(name, GATHER_SECONDS)

    def counts(self, markers: Iterable[CompiledMarker]) -> None:
        """Has the status of markers looked at; at once if their deletion waits for what just happened."""
        for each in markers:
            if each.deleting:
                self.census.at_once(each.key)
            else:
                self.census.request(each.key)
