"""When a probe runs: pure arithmetic of phases and ticks.

A probe ticks at the wall times that are its phase modulo its period. The wall clock is read once, when the
daemon starts; from then on everything counts on the loop's clock, so that a stepped wall clock moves no tick.
The phase is a hash of what is asked of whom: it survives a restart, spreads the probes of a node evenly, and
lets identical execs of several probes meet in one tick.

Source: kubelet pkg/kubelet/prober/worker.go (run).
Differs: kubelet delays every probe by a random share of its period after a restart and drifts with its
ticker; here the phase is stable and a late tick never moves the following ones.
"""

import math
from hashlib import blake2b
from typing import Final, NamedTuple

from kruise_probe.api.core import Probe
from kruise_probe.daemon.identity import handler_bytes

START_SPREAD_SECONDS: Final = 10.0
"""How long after a start of the daemon a probe without a known state waits at most."""

PHASE_STEP_SECONDS: Final = 0.05
"""Phases are multiples of it. Of many probes some are due together then, and the loop wakes once for all of them: on a
quiet machine waking costs as much as a probe does."""

MAX_STRETCH: Final = 8
"""Of the period of a probe whose execs hang."""

CLOCK_SLACK_SECONDS: Final = 0.001
"""A timer may fire so much early; the tick that it served is not taken for the next one."""

_FULL: Final = 1 << 64


class Anchor(NamedTuple):
    """One instant, read on both clocks: seconds since the epoch, and seconds of the loop."""

    wall_seconds: float
    loop_seconds: float

    def loop_time_of(self, wall_seconds: float) -> float:
        return self.loop_seconds + (wall_seconds - self.wall_seconds)

    def next_tick(self, timing: "Timing", after: float) -> float:
        """Loop time of the first tick that is later than `after` (loop time)."""
        period = timing.period_seconds
        first = self.loop_time_of(math.floor(self.wall_seconds / period) * period)
        first += timing.phase_seconds
        tick = first + (math.floor((after - first) / period) + 1) * period
        return tick if tick > after else tick + period


class Timing(NamedTuple):
    """What fixes the ticks of a probe; `phase_seconds` lies in [0, period)."""

    period_seconds: float
    phase_seconds: float


def timing_of(pod_uid: str, container: str, probe: Probe) -> Timing:
    """The same for every probe that asks the same container the same thing as often."""
    period = probe.effective_period_seconds
    text = b"\0".join(
        (pod_uid.encode(), container.encode(), handler_bytes(probe), str(period).encode())
    )
    steps = round(period / PHASE_STEP_SECONDS)
    step = int.from_bytes(blake2b(text, digest_size=8).digest(), "big") * steps // _FULL
    return Timing(float(period), step * PHASE_STEP_SECONDS)


def first_due(
    *, loop_now: float, wall_now: float, started_at: float | None, initial_delay_seconds: float
) -> float:
    """Loop time of the first probe of a new container: `initial_delay_seconds` after its start.

    `wall_now` and `started_at` are seconds since the epoch. A start that lies in the future (clocks that
    disagree) counts as now.
    """
    age = 0.0 if started_at is None else max(wall_now - started_at, 0.0)
    return loop_now + max(initial_delay_seconds - age, 0.0)


def due_after_restart(anchor: Anchor, timing: Timing, loop_now: float) -> float:
    """First probe of a container that ran before this daemon and whose state is not known.

    Within `START_SPREAD_SECONDS`, or a period if that is shorter: spread by the phase, so that a node full of
    probes does not run them all at once.
    """
    period, phase = timing
    if period <= START_SPREAD_SECONDS:
        return anchor.next_tick(timing, loop_now)
    return loop_now + phase / period * START_SPREAD_SECONDS


def tick_after(anchor: Anchor, timing: Timing, served: float, *, on_phase: bool) -> float:
    """The tick that follows one that was served at loop time `served`.

    After a probe outside the phase (`on_phase` False) a tick within half a period is left out.
    """
    if on_phase:
        return anchor.next_tick(timing, served + CLOCK_SLACK_SECONDS)
    return anchor.next_tick(timing, served + timing.period_seconds / 2)


def ticks_missed(due: float, loop_now: float, period_seconds: float) -> int:
    """How many later ticks have passed when the tick of `due` is served at `loop_now`."""
    return max(int((loop_now - due) // period_seconds), 0)


def stretch(timeouts_in_a_row: int, failure_threshold: int) -> int:
    """By what to multiply the period of a probe whose execs hang.

    1 until the probe has failed and hung twice; then 2, 4 and `MAX_STRETCH`. So hanging delays no verdict, and
    afterwards leaves fewer processes behind in the container.
    """
    excess = timeouts_in_a_row - max(failure_threshold, 2)
    if excess < 0:
        return 1
    return min(2 << min(excess, 8), MAX_STRETCH)


def runs_late(age_seconds: float, period_seconds: float) -> bool:
    """Whether a tick that found the probe still under way is served after all, `age_seconds` later.

    Only within half a period, so that ticks never bunch.
    """
    return age_seconds <= period_seconds / 2
