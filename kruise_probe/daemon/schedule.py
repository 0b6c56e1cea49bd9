"""When a probe runs: pure arithmetic of phases and ticks, and the timer that follows it.

A probe ticks at the wall times that equal its phase modulo its period. The wall clock is read once, at start of the
daemon. Later times come from the loop's clock, so a step of the wall clock moves no tick.
The phase is a hash of pod uid, container, probe name and period. It survives a restart and spreads the probes of a node
evenly.

Source: kubelet pkg/kubelet/prober/worker.go (run).
Differs: the phase is stable, and a late tick never moves the following ones. Kubelet delays every probe by a random
share of its period after a restart, and drifts with its ticker.
"""

import asyncio
import math
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from kruise_probe.api.names import ProbeKey
from kruise_probe.api.probe import Probe
from kruise_probe.api.times import CLOCK_SLACK_SECONDS
from kruise_probe.daemon import metrics

START_SPREAD_SECONDS: Final = 10.0
"""Longest wait for the first attempt of a probe without a known state after the daemon starts."""

PHASE_STEP_SECONDS: Final = 0.05
"""Phases are multiples of it, so that several probes are due together and the loop wakes once for all of them.

On an idle machine a wake-up costs as much as a probe."""

MAX_STRETCH: Final = 8
"""Largest factor for the period of an exec probe that hangs."""

LEAST_WAIT_SECONDS: Final = 30.0
WAIT_SLACK_SECONDS: Final = 0.5

_FULL: Final = 1 << 64


class StartTime(NamedTuple):
    """When the daemon started, on both clocks: seconds since the epoch, and loop time. Ticks are computed from it."""

    wall_seconds: float
    loop_seconds: float

    def next_on_phase(self, timing: "Timing", after: float) -> float:
        """Loop time of the first tick on phase that is later than `after` (loop time)."""
        period = timing.period_seconds
        since_period_began = self.wall_seconds % period
        period_began = self.loop_seconds - since_period_began
        first = period_began + timing.phase_seconds
        passed = (after - first) / period
        periods = math.floor(passed) + 1
        tick = first + periods * period
        if tick <= after:
            tick += period
        return tick


class Timing(NamedTuple):
    """Period and phase of a probe's ticks; `phase_seconds` lies in [0, period)."""

    period_seconds: float
    phase_seconds: float


class Tick(NamedTuple):
    """A tick at loop time `at`. `on_phase` is False for a first probe, which runs at once or after a delay."""

    at: float
    on_phase: bool


def timing_of(key: ProbeKey, probe: Probe) -> Timing:
    """The timing of a probe."""
    period = probe.effective_period_seconds
    name = str(key.probe)
    text = "\0".join((key.pod_uid, key.container, name, str(period)))
    hashed = blake2b(text.encode(), digest_size=8)
    share = int.from_bytes(hashed.digest())
    steps = round(period / PHASE_STEP_SECONDS)
    step = share * steps // _FULL
    phase = step * PHASE_STEP_SECONDS
    return Timing(float(period), phase)


def due_after_restart(start: StartTime, timing: Timing, loop_now: float) -> float:
    """First probe of a container that ran before this daemon and whose state is not known.

    Within `START_SPREAD_SECONDS`, or one period if that is shorter. Spread by the phase, so that the probes of a node
    do not all run at once.
    """
    if timing.period_seconds <= START_SPREAD_SECONDS:
        return start.next_on_phase(timing, loop_now)
    share = timing.phase_seconds / timing.period_seconds
    wait = share * START_SPREAD_SECONDS
    return loop_now + wait


def tick_after(start: StartTime, timing: Timing, last: Tick, stretch: int = 1) -> float:
    """Loop time of the tick that follows `last`: every `stretch`-th tick on phase is served.

    After a tick outside the phase, a tick within half a period is skipped.
    """
    period = timing.period_seconds
    skipped = period / 2
    if last.on_phase:
        skipped = CLOCK_SLACK_SECONDS
    following = start.next_on_phase(timing, last.at + skipped)
    not_served = stretch - 1
    return following + not_served * period


def ticks_missed(due: float, loop_now: float, period_seconds: float) -> int:
    """Number of later ticks that have passed when the tick of `due` is served at `loop_now`."""
    late_seconds = loop_now - due
    periods = int(late_seconds // period_seconds)
    return max(periods, 0)


def stretch(timeouts_in_a_row: int, failure_threshold: int) -> int:
    """The factor for the period of an exec probe that hangs.

    1 until the timeouts in a row reach the failure threshold, and at least two; then 2, 4 and `MAX_STRETCH`. So it
    never delays the Failed state, and fewer processes pile up in the container.
    """
    threshold = max(failure_threshold, 2)
    excess = timeouts_in_a_row - threshold
    if excess < 0:
        return 1
    doublings = min(excess, MAX_STRETCH)
    return min(2 << doublings, MAX_STRETCH)


def timeouts_of_a_stuck_probe(failure_threshold: int) -> int:
    """Timeouts in a row that give the longest period."""
    return max(failure_threshold, 2) + MAX_STRETCH


def longest_wait(period_seconds: float) -> float:
    """How long an attempt may wait for a place before its probe is Unknown; checked at ticks, which are a bit late."""
    wait = max(3 * period_seconds, LEAST_WAIT_SECONDS)
    return wait - WAIT_SLACK_SECONDS


class Ticker:
    """The timer of one probe: calls `on_tick` at its ticks. Stopped until `tick_at` or `tick_on_phase` is called."""

    def __init__(self, start: StartTime, timing: Timing, on_tick: Callable[[], None]) -> None:
        self.timing = timing
        self._start = start
        self._on_tick = on_tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._last = Tick(0.0, on_phase=False)
        self._next = self._last
        self._stretch = 1

    def tick_at(self, due: float) -> None:
        """Set the next tick to loop time `due`, regardless of the phase."""
        tick = Tick(due, on_phase=False)
        self._set(tick)

    def tick_on_phase(self) -> None:
        """Set the next tick to the next one of the phase."""
        now = self._loop.time()
        due = self._start.next_on_phase(self.timing, now)
        self._set(Tick(due, on_phase=True))

    def stretch_to(self, factor: int) -> None:
        """Serve only every `factor`-th tick, counted from the last one; skipped ticks do not count as missed."""
        if factor == self._stretch:
            return
        self._stretch = factor
        if self._timer is None or not self._next.on_phase:
            return
        now = self._loop.time()
        soonest = self._start.next_on_phase(self.timing, now)
        following = tick_after(self._start, self.timing, self._last, factor)
        due = max(following, soonest)
        self._set(Tick(due, on_phase=True))

    def runs_late(self, at: float) -> bool:
        """Whether a tick that found an attempt in flight at loop time `at` is still served.

        Only within half a period, so that attempts do not bunch. A stretched probe waits for its next tick: its attempts
        hang, and one that starts right after the last would never let it rest.
        """
        if self._stretch > 1:
            return False
        age = self._loop.time() - at
        return age <= self.timing.period_seconds / 2

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
        at = self._loop.time()
        due = self._next.at
        missed = ticks_missed(due, at, self.timing.period_seconds)
        if missed:
            metrics.TICKS_MISSED.inc(missed)
        served_at = max(at, due)
        self._last = Tick(served_at, self._next.on_phase)
        # Before `on_tick`: there is a next tick even if it raises.
        following = tick_after(self._start, self.timing, self._last, self._stretch)
        self._next = Tick(following, on_phase=True)
        self._timer = self._loop.call_at(following, self._fire)
        self._on_tick()
