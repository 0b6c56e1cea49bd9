"""The timer of one probe: ticks at a fixed rate, drops missed ticks, never runs two attempts at once.

Source: kubelet pkg/kubelet/prober/worker.go (run: time.Ticker).
Differs: ticks are computed from an anchor, so that lateness does not add up. A tick that finds an attempt in flight is
served when the attempt ends, if that is within half a period.
"""

import asyncio
from collections.abc import Callable

from kruise_probe.daemon import metrics
from kruise_probe.daemon.schedule import Anchor, Timing, runs_late, tick_after, ticks_missed


class Ticker:
    """Calls `on_tick` at the ticks of `timing`; it returns False if an attempt is still in flight.

    Stopped until `tick_at` or `tick_on_phase` is called.
    """

    def __init__(self, anchor: Anchor, timing: Timing, on_tick: Callable[[], bool]) -> None:
        self.timing = timing
        self._anchor = anchor
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._served = 0.0
        self._on_phase = self._served_on_phase = False
        self._stretch = 1
        self._late_since: float | None = None

    def tick_at(self, due: float) -> None:
        """Set the next tick to loop time `due`, regardless of the phase."""
        self._arm(due, on_phase=False)

    def tick_on_phase(self) -> None:
        """Set the next tick to the next one of the phase."""
        self._arm(self._anchor.next_tick(self.timing, self._loop.time()), on_phase=True)

    def stretch_to(self, factor: int) -> None:
        """Serve only every `factor`-th tick, counted from the last one; skipped ticks do not count as missed."""
        if factor == self._stretch:
            return
        self._stretch = factor
        if self._timer is not None and self._on_phase:
            soonest = self._anchor.next_tick(self.timing, self._loop.time())
            self._arm(max(self._following(), soonest), on_phase=True)

    def _following(self) -> float:
        tick = tick_after(self._anchor, self.timing, self._served, on_phase=self._served_on_phase)
        return tick + (self._stretch - 1) * self.timing.period_seconds

    def probe_ended(self) -> None:
        """Serve the tick that came during the attempt, or count it as missed."""
        if self._late_since is None:
            return
        age = self._loop.time() - self._late_since
        self._late_since = None
        if not runs_late(age, self.timing.period_seconds) or not self._on_tick():
            metrics.TICKS_MISSED.inc()

    def stop(self) -> None:
        """Stop until `tick_at` or `tick_on_phase` is called."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._late_since = None

    def _arm(self, due: float, *, on_phase: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._on_phase = on_phase
        self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        at, period = self._loop.time(), self.timing.period_seconds
        missed = ticks_missed(self._due, at, period)
        self._served, self._served_on_phase = max(at, self._due), self._on_phase
        # Before `on_tick`: there is a next tick even if it raises.
        self._arm(self._following(), on_phase=True)
        if not self._on_tick():
            missed += self._late_since is not None
            self._late_since = at
        if missed:
            metrics.TICKS_MISSED.inc(missed)
