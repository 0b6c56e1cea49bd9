"""Slow steps: CPU time of the event loop's thread without a pause, in which no watch, timer or health check is served.

Only a step that took long by the clock is measured, so a usual one costs two readings of the clock.

Source: no counterpart. asyncio's debug mode reports slow callbacks by the clock, and costs much more.
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import monotonic, thread_time
from typing import Any, Final, Generic, TypeVar

import structlog

from kruise_probe.workqueue.metrics import SLOW_STEPS

T = TypeVar("T")

SLOW_SECONDS: Final = 0.05
PRECISION_SECONDS: Final = 0.01
"""CPU time before the step that may be counted with it."""


class _Clock:
    """Reads the thread's CPU time, which is slow, at most once in `PRECISION_SECONDS` before steps."""

    def __init__(self) -> None:
        self._read_at = 0.0
        self._cpu_seconds = 0.0

    def begin(self) -> float:
        now = monotonic()
        if now - self._read_at > PRECISION_SECONDS:
            self._read_at = now
            self._cpu_seconds = thread_time()
        return now

    def slow_seconds(self, begun_at: float) -> float:
        """CPU time of a step that ends now, if it is slow; otherwise 0.0."""
        if monotonic() - begun_at < SLOW_SECONDS:
            return 0.0
        seconds = thread_time() - self._cpu_seconds
        if seconds < SLOW_SECONDS:
            return 0.0
        return seconds


_clock: Final = _Clock()
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def run_step(step: Callable[[], T]) -> T:
    """Run a step of a reconcile. Count and log it with the controller and the key of the context, if it is slow."""
    begun_at = _clock.begin()
    try:
        return step()
    finally:
        cpu_seconds = _clock.slow_seconds(begun_at)
        if cpu_seconds:
            SLOW_STEPS.labels(structlog.contextvars.get_contextvars().get("controller", "")).inc()
            _log.warning("slow step", cpu_seconds=round(cpu_seconds, 3))


class measured(Generic[T]):
    """Awaits `work` as a chain of steps."""

    def __init__(self, work: Awaitable[T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step = steps.__next__
        while True:
            try:
                waiting = run_step(step)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                yield waiting
                step = steps.__next__
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - it is thrown into the work
                step = partial(steps.throw, thrown)
