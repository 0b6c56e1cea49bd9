"""Slow steps: CPU time of the event loop's thread without a pause, in which no watch, timer or health check is served.

Only a step that took long by the clock is measured, so a usual one costs two readings of the clock.

Source: no counterpart. asyncio's debug mode reports slow callbacks by the clock, and costs much more.
"""

from collections.abc import Awaitable, Callable, Generator
from time import monotonic, thread_time
from typing import Any, Final, Generic, TypeVar

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


class measured(Generic[T]):
    """Awaits `work`, and calls `report` with the CPU seconds of each slow step of it."""

    def __init__(
        self,
        work: Awaitable[T],
        report: Callable[[float], None],
    ) -> None:
        self._work = work
        self._report = report

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            begun_at = _clock.begin()
            try:
                waiting = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                if seconds := _clock.slow_seconds(begun_at):
                    self._report(seconds)
            try:
                yield waiting
                error = None
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - it is thrown into the work
                error = thrown
