"""When the next census of a marker is due: at most once a second, and never a large share of the CPU.

Thousands of pods may change within one second; the marker's status tells of all of them at once.

Source: no counterpart; Kruise counts on each event of a marker or pod.
Differs: as said.
"""

import asyncio
from typing import Final

from kruise_probe.api.keys import NamespacedName
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.rate_limiting import WorkQueue

INTERVAL_SECONDS: Final = 1.0
"""Between two censuses of one marker."""

TOLERANCE_SECONDS: Final = 0.001

PAUSE_PER_SECOND_OF_WORK: Final = 50.0
"""A census that takes long pauses for longer, so that counting costs 2 % of the CPU at most."""


class CensusPace:
    """Puts markers into their queue, no earlier than their last census allows. Bounded by the live markers."""

    def __init__(self, queue: WorkQueue[NamespacedName]) -> None:
        self._queue = queue
        self._waiting: set[NamespacedName] = set()
        self._not_before: dict[NamespacedName, float] = {}

    def request(self, key: NamespacedName, *, delay_seconds: float = 0.0) -> None:
        """Something that the status tells of has changed. Cheap when a census is waiting already."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        pause = self._not_before.get(key, 0.0) - asyncio.get_running_loop().time()
        self._queue.add_after(
            key,
            max(pause, delay_seconds),
            Priority.LOW if delay_seconds else Priority.NORMAL,
        )

    def at_once(self, key: NamespacedName) -> None:
        """Something was decided that must not wait: creation, deletion, an edit."""
        self._queue.add(key)

    def started(self, key: NamespacedName) -> None:
        """From now on a request asks for another census."""
        self._waiting.discard(key)

    def finished(self, key: NamespacedName, seconds: float) -> None:
        """A census took `seconds`."""
        pause = max(INTERVAL_SECONDS, seconds * PAUSE_PER_SECOND_OF_WORK)
        self._not_before[key] = asyncio.get_running_loop().time() + pause

    def is_due(self, key: NamespacedName) -> bool:
        """Whether the pause after the last census is over, but for what timers and floats may be off."""
        left = self._not_before.get(key, 0.0) - asyncio.get_running_loop().time()
        return left <= TOLERANCE_SECONDS

    def forget(self, key: NamespacedName) -> None:
        """The marker is gone."""
        self._waiting.discard(key)
        self._not_before.pop(key, None)
