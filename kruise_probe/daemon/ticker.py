"""The timer of one probe: ticks at a fixed rate and drops missed ticks.

Source: kubelet pkg/kubelet/prober/worker.go (run: time.Ticker).
Differs: ticks are computed from the daemon's start, so that lateness does not add up.
"""

import asyncio
from collections.abc import Callable

from kruise_probe.daemon import metrics
from kruise_probe.daemon.schedule import StartTime, Tick, Timing, tick_after, ticks_missed


class Ticker:
    """Calls `on_tick` at the ticks of `timing`. Stopped until `tick_at` or `tick_on_phase` is called."""

    def __init__(self, start: StartTime, timing: Timing, on_tick: Callable[[], None]) -> None:
        self.timing = timing
        self._start = start
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = self._last = Tick(0.0, on_phase=False)
        self._stretch = 1

    def tick_at(self, due: float) -> None:
        """Set the next tick to loop time `due`, regardless of the phase."""
        self._set(Tick(due, on_phase=False))

    def tick_on_phase(self) -> None:
        """Set the next tick to the next one of the phase."""
        self._set(Tick(self._start.next_on_phase(self.timing, self._loop.time()), on_phase=True))

    def stretch_to(self, factor: int) -> None:
        """Serve only every `factor`-th tick, counted from the last one; skipped ticks do not count as missed."""
        if factor == self._stretch:
            return
        self._stretch = factor
        if self._timer is not None and self._next.on_phase:
            soonest = self._start.next_on_phase(self.timing, self._loop.time())
            following = tick_after(self._start, self.timing, self._last, factor)
            self._set(Tick(max(following, soonest), on_phase=True))

    def runs_late(self, at: float) -> bool:
        """Whether a tick that found an attempt in flight at loop time `at` is still served.

        Only within half a period, so that attempts do not bunch. A stretched probe waits for its next tick: its attempts
        hang, and one that starts right after the last would never let it rest.
        """
        age = self._loop.time() - at
        return self._stretch == 1 and age <= self.timing.period_seconds / 2

    def stop(self) -> None:
        """Stop until `tick_at` or `tick_on_phase` is called."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _set(self, tick: Tick) -> None:
        self.stop()
        self._next = tick
        self._timer = self._loop.call_at(tick.at, self._fire)

    def _fire(self) -> None:
        at, due = self._loop.time(), self._next.at
        if missed := ticks_missed(due, at, self.timing.period_seconds):
            metrics.TICKS_MISSED.inc(missed)
        self._last = Tick(max(at, due), self._next.on_phase)
        # Before `on_tick`: there is a next tick even if it raises.
        following = tick_after(self._start, self.timing, self._last, self._stretch)
        self._next = Tick(following, on_phase=True)
        self._timer = self._loop.call_at(following, self._fire)
        self._on_tick()
