"""A process that stood still says so, and takes what ran out meanwhile for no verdict, once."""

import asyncio
from collections.abc import Callable

import pytest
from support.background import background

from kruise_probe.daemon.attempts import Attempts
from kruise_probe.daemon.probers.prober import (
    Continuation,
    Outcome,
    Prober,
    StartResult,
    Target,
    Verdict,
)
from kruise_probe.daemon.standstill import LONG_SECONDS, STEP_SECONDS, Standstill

StandStill = Callable[[float], None]

TARGET = Target(pod_ip="127.0.0.9", container_id="c1")
TIMED_OUT = Outcome(Verdict.FAILURE, "i/o timeout", timed_out=True)
REFUSED = Outcome(Verdict.FAILURE, "connection refused")


@pytest.fixture
async def stand_still(monkeypatch: pytest.MonkeyPatch) -> StandStill:
    """Lets so many seconds pass in which the loop does nothing."""
    loop = asyncio.get_running_loop()
    time, lost = loop.time, 0.0

    def stand(seconds: float) -> None:
        nonlocal lost
        lost += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + lost)
    return stand


async def test_a_process_that_goes_on_has_not_stood_still() -> None:
    standstill = Standstill()
    async with background(standstill.run()):
        await asyncio.sleep(60)

    assert not standstill.since(0.0)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(STEP_SECONDS + 1.1 * LONG_SECONDS, True, id="long"),
        pytest.param(STEP_SECONDS + 0.9 * LONG_SECONDS, False, id="short"),
    ],
)
async def test_a_standstill_is_remembered_from_its_end(
    stand_still: StandStill, seconds: float, expected: bool
) -> None:
    loop, standstill = asyncio.get_running_loop(), Standstill()
    async with background(standstill.run()):
        await asyncio.sleep(1)
        before = loop.time()
        stand_still(seconds)
        await asyncio.sleep(0.001)

        assert standstill.since(before) is expected
        await asyncio.sleep(1)
        assert not standstill.since(loop.time())


async def never() -> Outcome:
    try:
        async with asyncio.timeout(1):
            await asyncio.get_running_loop().create_future()
    except TimeoutError:
        return TIMED_OUT
    raise AssertionError("nobody answers")


async def refused() -> Outcome:
    await asyncio.sleep(1)
    return REFUSED


@pytest.mark.parametrize(
    ("waiting", "stops", "expected"),
    [
        pytest.param(never, [True], [], id="not-heard-in-time"),
        pytest.param(never, [False], [TIMED_OUT], id="not-answered-in-time"),
        pytest.param(refused, [True], [REFUSED], id="refused"),
        pytest.param(never, [True, False], [TIMED_OUT], id="not-answered-the-next-time"),
        pytest.param(never, [True, True], [TIMED_OUT], id="not-heard-twice"),
        pytest.param(never, [True, True, True], [TIMED_OUT], id="not-heard-every-time"),
    ],
)
async def test_a_time_that_ran_out_unheard_is_no_verdict_but_once(
    stand_still: StandStill, waiting: Continuation, stops: list[bool], expected: list[Outcome]
) -> None:
    outcomes: list[Outcome] = []
    standstill = Standstill()
    async with background(standstill.run()), asyncio.TaskGroup() as group:
        attempts = Attempts(
            group.create_task,
            standstill,
            on_outcome=lambda outcome, _: outcomes.append(outcome),
            on_failure=lambda error: pytest.fail(str(error)),
            on_end=lambda: None,
        )
        for stop in stops:
            attempts.begin(_Begins(waiting), TARGET)
            await asyncio.sleep(0.1)
            if stop:
                stand_still(5)
            await asyncio.sleep(2)

        assert outcomes == expected
        assert not attempts.under_way


class _Begins(Prober):
    def __init__(self, waiting: Continuation) -> None:
        self._waiting = waiting

    def start(self, target: Target) -> StartResult:
        return self._waiting

    async def run(self, target: Target) -> Outcome:
        raise AssertionError("only start is used")
