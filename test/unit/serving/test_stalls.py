"""Stalls of the process: detected, reported by the health check, and forgotten."""

import asyncio
from collections.abc import Callable

import pytest
from support.background import background
from support.cases import cases

from kruise_probe.serving.stalls import (
    MAX_LAG_SECONDS,
    MEMORY_SECONDS,
    STALL_SECONDS,
    TICK_SECONDS,
    StallDetector,
)

Stall = Callable[[float], None]


@pytest.fixture
async def stall(monkeypatch: pytest.MonkeyPatch) -> Stall:
    """Lets this many seconds pass in which the loop does nothing."""
    loop = asyncio.get_running_loop()
    time = loop.time
    lost = 0.0

    def pass_seconds(seconds: float) -> None:
        nonlocal lost
        lost += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + lost)
    return pass_seconds


async def test_without_a_delay_there_is_no_stall() -> None:
    detector = StallDetector()
    async with background(detector.run()):
        await asyncio.sleep(60)

    assert not detector.stalled_since(0.0)
    assert detector._longest_seconds < 0.01
    assert detector.check() is None


@cases(
    "seconds expected",
    long=(TICK_SECONDS + 1.1 * STALL_SECONDS, True),
    short=(TICK_SECONDS + 0.9 * STALL_SECONDS, False),
)
async def test_a_stall_counts_for_attempts_that_started_before_its_end(
    stall: Stall, seconds: float, expected: bool
) -> None:
    loop = asyncio.get_running_loop()
    detector = StallDetector()
    async with background(detector.run()):
        await asyncio.sleep(1)
        before = loop.time()
        stall(seconds)
        await asyncio.sleep(0.001)

        assert detector.stalled_since(before) is expected
        await asyncio.sleep(1)
        assert not detector.stalled_since(loop.time())


@pytest.mark.parametrize("begins_after", [0.0, 0.1, TICK_SECONDS - 0.01])
async def test_a_stall_is_measured_whenever_it_begins_between_two_ticks(
    stall: Stall, begins_after: float
) -> None:
    detector = StallDetector()
    async with background(detector.run()):
        await asyncio.sleep(1 + begins_after)
        stall(0.9)
        await asyncio.sleep(0.001)

        assert detector._longest_seconds > 0.6


async def test_a_long_stall_is_unhealthy_and_forgotten_later(stall: Stall) -> None:
    """The longest is remembered, from when it happened."""
    detector = StallDetector()
    async with background(detector.run()):
        for seconds in (MAX_LAG_SECONDS + 1, MAX_LAG_SECONDS + 2):
            await asyncio.sleep(10)
            stall(seconds)
        await asyncio.sleep(MEMORY_SECONDS - 1)
        problem = detector.check()
        await asyncio.sleep(2)

        assert problem == "the event loop was blocked for 6.8 s; at most 5 s are healthy"
        assert detector.check() is None
