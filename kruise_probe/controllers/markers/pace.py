"""Rate limit for the status counts (the census) of markers: once a second, and at most 2 % of the CPU.

Thousands of pods may change within one second. One status update covers all of them.

Source: no counterpart.
Differs: Kruise counts on each event of a marker or pod.
"""

import asyncio
from typing import Final

from kruise_probe.api.keys import NamespacedName
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue

INTERVAL_SECONDS: Final = 1.0
"""Minimum time between two censuses of one marker."""


PAUSE_PER_SECOND_OF_WORK: Final = 50.0
"""Pause after a census, per second that it took: counting uses at most 2 % of the CPU."""


class CensusPace:
    """Enqueues markers, no earlier than the pause after their last census allows. Bounded by the live markers."""

    def __init__(self, queue: WorkQueue[NamespacedName]) -> None:
        self._queue = queue
        self._waiting: set[NamespacedName] = set()
        self._not_before: dict[NamespacedName, float] = {}

    def request(self, key: NamespacedName, *, delay_seconds: float = 0.0) -> None:
        """Requests a census after the pause. Requests are deduplicated while one is waiting."""
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
        """Enqueues a marker without delay: after its creation, deletion or edit."""
        self._queue.add(key)

    def started(self, key: NamespacedName) -> None:
        """Records the start of a census: later requests cause another one."""
        self._waiting.discard(key)

    def finished(self, key: NamespacedName, seconds: float) -> None:
        """Records the end of a census that took `seconds`."""
        pause = max(INTERVAL_SECONDS, seconds * PAUSE_PER_SECOND_OF_WORK)
        self._not_before[key] = asyncio.get_running_loop().time() + pause

    def is_due(self, key: NamespacedName) -> bool:
        """Whether the pause after the last census is over, within the tolerance of timers and floats."""
        left = self._not_before.get(key, 0.0) - asyncio.get_running_loop().time()
        return left <= CLOCK_SLACK_SECONDS

    def forget(self, key: NamespacedName) -> None:
        """Removes a deleted marker."""
        self._waiting.discard(key)
        self._not_before.pop(key, None)
