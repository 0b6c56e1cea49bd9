import asyncio
from functools import partial

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.background import background
from support.cases import cases

from kruise_probe.api.times import loop_time
from kruise_probe.workqueue.queue import WorkQueue
from kruise_probe.workqueue.retries import (
    MAX_DELAY_SECONDS,
    OVERALL_BURST,
    OVERALL_RETRIES_PER_SECOND,
)

Queue = WorkQueue[str]


@pytest.fixture
def queue() -> Queue:
    return Queue(name="queue")


@cases("position", first=0, last=-1)
@cases("added_first", while_it_wakes=True, before_it_wakes=False)
async def test_a_cancelled_get_does_not_keep_a_key_from_others(
    queue: Queue, added_first: bool, position: int
) -> None:
    async with asyncio.TaskGroup() as group:
        getting = [group.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        cancelled = getting.pop(position)
        if added_first:
            queue.add("a")
        cancelled.cancel()
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("b")
    assert cancelled.cancelled()
    assert {task.result()[0] for task in getting} == {"a", "b"}


async def test_done_of_a_key_that_is_not_processed_is_an_error(queue: Queue) -> None:
    queue.add("a")
    with pytest.raises(KeyError):
        queue.done("a")


async def failed(queue: Queue, key: str, *, at_least_seconds: float = 0.0) -> float:
    """Fail a key; returns after how many seconds it is ready again."""
    failed_at = loop_time()
    queue.add_rate_limited(key, at_least_seconds=at_least_seconds)
    found, _ = await queue.get()
    queue.done(found)
    return loop_time() - failed_at


async def test_a_key_that_always_fails_is_retried_every_30_s(queue: Queue) -> None:
    delays = [await failed(queue, "a") for _ in range(2000)]
    assert delays[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert MAX_DELAY_SECONDS == 30, "as a reflector's backoff"
    assert delays[-1] == pytest.approx(30), "and no overflow"


async def test_keys_that_fail_again_before_their_retry_delay_no_other(
    queue: Queue,
) -> None:
    for number in range(20_000):
        queue.add_rate_limited(f"bad {number % 150}")
    queue.add_rate_limited("other")
    failed_at = loop_time()
    key = ""
    while key != "other":
        key, _ = await queue.get()
    assert loop_time() - failed_at == pytest.approx(0.005)


async def test_the_server_may_say_a_longer_delay(queue: Queue) -> None:
    assert await failed(queue, "a", at_least_seconds=7) == pytest.approx(7)
    assert await failed(queue, "a", at_least_seconds=0.001) == pytest.approx(0.01)


async def test_retries_of_thousands_of_keys_are_spread_over_time(queue: Queue) -> None:
    for number in range(5000):
        queue.add_rate_limited(str(number))
    ready_at = []
    for _ in range(5000):
        await queue.get()
        ready_at.append(loop_time())
    assert max(ready_at[:500]) == pytest.approx(0.005)
    assert max(ready_at) == pytest.approx(45.005), "100 per second"


failing = st.tuples(
    st.floats(0, 2),
    st.sampled_from("abcd"),
    st.integers(1, OVERALL_BURST + 100),
)
"""Seconds since the one before, a group, and how many of its keys fail."""


virtual_loop = partial(looptime.new_event_loop, noop_cycles=2)


@settings(max_examples=25, deadline=None)
@given(st.lists(failing, max_size=4), st.floats(0, 6))
def test_failing_keys_delay_no_first_retry_of_another_group(
    others: list[tuple[float, str, int]], at: float
) -> None:
    """All retries together keep their rate."""
    queue = Queue(name="shared", group_of=lambda key: key[0])
    ready_at: dict[str, float] = {}

    async def fail() -> None:
        for seconds, group, keys in others:
            await asyncio.sleep(seconds)
            for number in range(keys):
                queue.add_rate_limited(f"{group}{number} {seconds}")

    async def run() -> None:
        async with background(fail()), background(serve()):
            await asyncio.sleep(at)
            queue.add_rate_limited("quiet")
            await asyncio.sleep(60)

    async def serve() -> None:
        while True:
            key, _ = await queue.get()
            ready_at[key] = loop_time()
            queue.done(key)

    with asyncio.Runner(loop_factory=virtual_loop) as runner:
        runner.run(run())
    assert ready_at["quiet"] - at <= 0.005 + 6 / OVERALL_RETRIES_PER_SECOND
    for count, seconds in enumerate(sorted(ready_at.values())):
        allowed = seconds * OVERALL_RETRIES_PER_SECOND
        assert count <= OVERALL_BURST + 1 + allowed
