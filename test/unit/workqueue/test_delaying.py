import asyncio

import pytest

from kruise_probe.workqueue.delaying import DelayingQueue
from kruise_probe.workqueue.priority import Priority


@pytest.fixture
def queue() -> DelayingQueue[str]:
    return DelayingQueue(name="")


async def next_at(queue: DelayingQueue[str]) -> tuple[str, float]:
    key = await queue.get()
    queue.done(key)
    return key, asyncio.get_running_loop().time()


async def test_a_key_is_ready_when_its_delay_has_ended(queue: DelayingQueue[str]) -> None:
    queue.add_after("later", 20)
    queue.add_after("sooner", 10)
    assert [await next_at(queue), await next_at(queue)] == [("sooner", 10), ("later", 20)]


@pytest.mark.parametrize("seconds", [0, -1])
async def test_no_delay_is_ready_at_once(queue: DelayingQueue[str], seconds: float) -> None:
    queue.add_after("a", seconds)
    assert len(queue) == 1
    assert queue.metrics.retries == 0


@pytest.mark.parametrize(
    "delays", [pytest.param((5, 30), id="shorter-first"), pytest.param((30, 5), id="shorter-later")]
)
async def test_of_two_delays_the_one_that_ends_first_counts_once(
    queue: DelayingQueue[str], delays: tuple[int, int]
) -> None:
    for seconds in delays:
        queue.add_after("a", seconds)
    assert await next_at(queue) == ("a", 5)
    await asyncio.sleep(100)
    assert (len(queue), queue.delayed) == (0, 0)


async def test_a_delayed_key_takes_the_highest_priority_asked_for(
    queue: DelayingQueue[str],
) -> None:
    queue.add_after("a", 5, Priority.LOW)
    queue.add_after("a", 9, Priority.HIGH)
    queue.add_after("a", 7, Priority.NORMAL)
    assert await queue.get_with_priority() == ("a", Priority.HIGH)


async def test_a_later_look_is_not_lost_to_an_earlier_add(queue: DelayingQueue[str]) -> None:
    queue.add_after("a", 60)
    queue.add("a")
    assert [await next_at(queue), await next_at(queue)] == [("a", 0), ("a", 60)]


async def test_a_delay_that_ends_while_the_key_is_processed_waits_for_its_end(
    queue: DelayingQueue[str],
) -> None:
    queue.add("a")
    queue.add_after("a", 5)
    key = await queue.get()
    await asyncio.sleep(10)
    assert len(queue) == 0
    queue.done(key)
    assert len(queue) == 1


async def test_shut_down_drops_delayed_keys(queue: DelayingQueue[str]) -> None:
    queue.add_after("a", 5)
    queue.shut_down()
    queue.add_after("b", 5)
    await asyncio.sleep(10)
    assert (len(queue), queue.delayed) == (0, 0)
