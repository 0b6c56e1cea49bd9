"""When the spec of a node may be written: a tenant within all limits must not fill the API server with writes of its nodes.

A spec of 1 MiB takes the API server a second of CPU. So its object is left alone for as long as the last write took, and few
large specs are written at a time: twelve at once would all exceed their deadline on a busy API server, and be sent again.

Source: no counterpart.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kruise_probe.api.times import CLOCK_SLACK_SECONDS, loop_time

MAX_PAUSE_SECONDS: Final = 5.0
"""Longest pause after a write."""

LARGE_PROBES: Final = 1000
"""A spec with more probes is large; they take 370 KB, results included. A node of 110 pods with three probes each has 330."""

LARGE_IN_FLIGHT: Final = 2
"""Large specs that are written at the same time."""

TURN_SECONDS: Final = 0.5
"""When a large spec that has to wait is tried again."""


class SpecPacer:
    """The pauses of nodes after their writes, and the large specs."""

    def __init__(self) -> None:
        self._paused_until: Final[dict[str, float]] = {}
        """By node, a loop time."""
        self._large: Final[set[str]] = set()
        self._writing: Final[set[str]] = set()

    def wait_seconds(self, node: str) -> float:
        """Seconds until the spec may be written, 0.0 for now."""
        pause = self._paused_until.get(node, 0.0) - loop_time()
        if pause > CLOCK_SLACK_SECONDS:
            return pause
        if node in self._large and len(self._large & self._writing) >= LARGE_IN_FLIGHT:
            return TURN_SECONDS
        return 0.0

    def record_size(self, node: str, probes: int) -> None:
        """Record the number of probes in the spec that is to be written."""
        if probes > LARGE_PROBES:
            self._large.add(node)
        else:
            self._large.discard(node)

    @contextmanager
    def writing(self, node: str) -> Iterator[None]:
        """The spec is written in the block."""
        began_at = loop_time()
        self._writing.add(node)
        try:
            yield
        finally:
            self._writing.discard(node)
            now = loop_time()
            self._paused_until[node] = now + min(now - began_at, MAX_PAUSE_SECONDS)

    def forget(self, node: str) -> None:
        self._paused_until.pop(node, None)
        self._large.discard(node)
