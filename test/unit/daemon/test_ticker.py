"""The timer of a probe on an event loop that is late."""

import asyncio
from collections.abc import Callable
from typing import cast

from kruise_probe.daemon import metrics
from kruise_probe.daemon.schedule import StartTime, Timing
from kruise_probe.daemon.ticker import Ticker


class LateLoop:
    """The running loop; it has been blocked for `late` seconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.late = 0.0

    def time(self) -> float:
        return self._loop.time() + self.late

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when - self.late, callback)


async def test_a_late_tick_is_served_once_and_those_that_passed_are_missed() -> None:
    def missed() -> float:
        (family,) = metrics.TICKS_MISSED.collect()
        return family.samples[0].value

    loop = LateLoop()
    served: list[float] = []
    ticker = Ticker(StartTime(0.0, 0.0), Timing(1.0, 0.0), lambda: served.append(loop.time()))
    ticker._loop = cast(asyncio.AbstractEventLoop, loop)
    ticker.tick_at(10.0)
    before = missed()
    loop.late = 2.25
    await asyncio.sleep(10)
    assert (served, missed() - before) == ([12.25], 2)

    await asyncio.sleep(2)
    ticker.stop()
    assert served[1:] == [13.0, 14.0]
    assert missed() - before == 2


async def test_b3_a_late_tick_of_a_longer_period_does_not_move_the_next() -> None:
    loop = LateLoop()
    served: list[float] = []
    ticker = Ticker(StartTime(0.0, 0.0), Timing(1.0, 0.0), lambda: served.append(loop.time()))
    ticker._loop = cast(asyncio.AbstractEventLoop, loop)
    ticker.tick_on_phase()
    ticker.stretch_to(2)
    loop.late = 0.75
    await asyncio.sleep(5.5)
    ticker.stop()
    assert served == [2.75, 4.0, 6.0]


async def test_a_stopped_timer_stays_stopped_when_its_period_changes() -> None:
    served: list[float] = []
    ticker = Ticker(StartTime(0.0, 0.0), Timing(1.0, 0.0), lambda: served.append(0.0))
    ticker.tick_on_phase()
    ticker.stop()
    ticker.stretch_to(2)
    await asyncio.sleep(10)
    assert served == []


async def test_a_stretched_timer_keeps_a_tick_outside_the_phase() -> None:
    loop = asyncio.get_running_loop()
    served: list[float] = []
    ticker = Ticker(StartTime(0.0, 0.0), Timing(1.0, 0.0), lambda: served.append(loop.time()))
    ticker.tick_at(2.75)
    ticker.stretch_to(2)
    await asyncio.sleep(5.5)
    ticker.stop()
    assert served == [2.75, 5.0]


async def test_a_timer_that_is_no_longer_stretched_ticks_at_its_phase_and_not_at_once() -> None:
    loop = asyncio.get_running_loop()
    served: list[float] = []
    ticker = Ticker(StartTime(0.0, 0.0), Timing(1.0, 0.0), lambda: served.append(loop.time()))
    ticker.stretch_to(8)
    ticker.tick_on_phase()
    await asyncio.sleep(4.5)
    ticker.stretch_to(1)
    await asyncio.sleep(2)
    ticker.stop()
    assert served == [1.0, 5.0, 6.0]
