"""What the embedded kubelet remembers of one container of one pod, over all its attempts."""

import msgspec

from kruise_probe.playground.node.containers import Container, State
from kruise_probe.playground.node.pods import PodContainer

FIRST_BACKOFF_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 10.0
HEALTHY_SECONDS = 10.0
"""A container that ran this long starts its backoff anew. Kubelet has 10 s, 300 s and 600 s: too long to watch."""


class ContainerRecord(msgspec.Struct, eq=False):
    """Written by the pod's worker alone.

    Attributes:
        current: the newest attempt; None before the first.
        previous: the attempt before it, ended.
        restarts: how many attempts came after the first.
        started: its startup probe has succeeded, or it has none.
        problem: why it cannot even be created; empty when it can.
        began: loop time of the newest start.
        restart_deadline: loop time from which it may start again.
        quick_ends: how often in a row it ended before it was healthy.
    """

    spec: PodContainer
    current: Container | None = None
    previous: Container | None = None
    restarts: int = 0
    started: bool = False
    problem: str = ""
    began: float = 0.0
    restart_deadline: float = 0.0
    quick_ends: int = 0

    @property
    def running(self) -> bool:
        return self.current is not None and self.current.state is State.RUNNING

    @property
    def exit_code(self) -> int | None:
        """Of the newest attempt; None while there is none, or it has not ended."""
        if self.current is None or self.current.state is not State.EXITED:
            return None
        return self.current.exit_code

    @property
    def ready(self) -> bool:
        return self.running and self.started

    def note_end(self, *, loop_time: float) -> None:
        """Sets when it may start again, after an end: at once, then later and later."""
        self.started = False
        self.quick_ends = 1 if loop_time - self.began >= HEALTHY_SECONDS else self.quick_ends + 1
        self.restart_deadline = loop_time + backoff_seconds(self.quick_ends)


def backoff_seconds(quick_ends: int) -> float:
    """How long a container waits that ended so often in a row: 0, 1, 2, 4, 8, then always 10."""
    if quick_ends <= 1:
        return 0.0
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** min(quick_ends - 2, 10), LONGEST_BACKOFF_SECONDS)
