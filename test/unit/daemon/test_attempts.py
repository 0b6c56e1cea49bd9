"""What is begun is told of once, and what is discarded never, in whatever moment that happens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from kruise_probe.daemon.attempts import Attempts
from kruise_probe.daemon.probers.prober import (
    Continuation,
    CouldNotProbe,
    Outcome,
    PendingResponse,
    Prober,
    StartResult,
    Target,
    Verdict,
)
from kruise_probe.daemon.standstill import Standstill

OK = Outcome(Verdict.SUCCESS)
TARGET = Target(pod_ip="127.0.0.9", container_id="c1")


class Scripted(Prober):
    """Begins as it is told."""

    def __init__(self, begin: Callable[[], StartResult]) -> None:
        self._begin = begin

    def start(self, target: Target) -> StartResult:
        return self._begin()

    async def run(self, target: Target) -> Outcome:
        raise AssertionError("only start is used")


class Answer(PendingResponse):
    """Looked at, it gives what it was made with."""

    def __init__(self, found: Outcome | Continuation) -> None:
        self._found = found

    def look(self) -> Outcome | Continuation:
        return self._found


async def slow() -> Outcome:
    await asyncio.sleep(0.5)
    return OK


async def impossible() -> Outcome:
    raise CouldNotProbe("RuntimeUnavailable", "away")


def broken() -> StartResult:
    raise ZeroDivisionError


@dataclass
class Told:
    """What was told, in order: outcomes with their seconds, failures by their type, and ends."""

    attempts: Attempts
    events: list[object] = field(default_factory=list)


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    events: list[object] = []
    async with asyncio.TaskGroup() as group:
        attempts = Attempts(
            group.create_task,
            Standstill(),
            on_outcome=lambda outcome, seconds: events.append((outcome, round(seconds, 3))),
            on_failure=lambda error: events.append(type(error)),
            on_end=lambda: events.append("end"),
        )
        yield Told(attempts, events)


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        pytest.param(lambda: OK, [(OK, 0.0)], id="at once"),
        pytest.param(lambda: Answer(OK), [(OK, 0.002), "end"], id="looked at"),
        pytest.param(lambda: Answer(slow), [(OK, 0.502), "end"], id="looked at, then waited for"),
        pytest.param(lambda: slow, [(OK, 0.5), "end"], id="waited for"),
        pytest.param(lambda: impossible, [CouldNotProbe, "end"], id="waited for in vain"),
        pytest.param(broken, [ZeroDivisionError], id="broken at the start"),
    ],
)
async def test_what_comes_of_an_attempt_is_told_once(
    told: Told, begin: Callable[[], StartResult], expected: list[object]
) -> None:
    told.attempts.begin(Scripted(begin), TARGET)
    await asyncio.sleep(1)

    assert told.events == expected
    assert not told.attempts.under_way


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda: Answer(OK), id="before it was looked at"),
        pytest.param(lambda: slow, id="while it is waited for"),
    ],
)
@pytest.mark.parametrize("after", [None, 0.0, 0.001], ids=["same step", "next step", "later"])
async def test_what_is_discarded_ends_without_a_word(
    told: Told, begin: Callable[[], StartResult], after: float | None
) -> None:
    """In the same step a task has not run yet: it is cancelled before it begins."""
    told.attempts.begin(Scripted(begin), TARGET)
    if after is not None:
        await asyncio.sleep(after)
    told.attempts.discard()
    assert told.attempts.under_way
    await asyncio.sleep(1)

    assert told.events == ["end"]
    assert not told.attempts.under_way


async def test_the_next_attempt_is_told_of_after_one_that_was_discarded(told: Told) -> None:
    told.attempts.begin(Scripted(lambda: slow), TARGET)
    told.attempts.discard()
    await asyncio.sleep(0.1)
    told.attempts.begin(Scripted(lambda: slow), TARGET)
    await asyncio.sleep(1)

    assert told.events == ["end", (OK, 0.5), "end"]
