import asyncio

import pytest
from support.cases import cases

from kruise_probe.workqueue.queue import MAX_DELAY_SECONDS, WorkQueue


@pytest.fixture
def queue() -> WorkQueue[str]:
    return WorkQueue(name="queue")


@cases("first", first=True, last=False)
@cases("added_first", while_it_wakes=True, before_it_wakes=False)
async def test_a_cancelled_get_does_not_keep_a_key_from_others(
    queue: WorkQueue[str], added_first: bool, first: bool
) -> None:
    async with asyncio.TaskGroup() as group:
        getting = [group.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        cancelled = getting.pop(0 if first else -1)
        if added_first:
            queue.add("a")
        cancelled.cancel()
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("b")
    assert cancelled.cancelled()
    assert {task.result()[0] for task in getting} == {"a", "b"}


async def test_done_of_a_key_that_is_not_processed_is_an_error(queue: WorkQueue[str]) -> None:
    queue.add("a")
    with pytest.raises(KeyError):
        queue.done("a")


async def failed(queue: WorkQueue[str], key: str, *, at_least_seconds: float = 0.0) -> float:
    """Fail a key; returns after how many seconds it is ready again."""
    failed_at = asyncio.get_running_loop().time()
    queue.add_rate_limited(key, at_least_seconds=at_least_seconds)
    found, _ = await queue.get()
    queue.done(found)
    return asyncio.get_running_loop().time() - failed_at


async def test_a_key_that_always_fails_is_retried_every_30_s(queue: WorkQueue[str]) -> None:
    delays = [await failed(queue, "a") for _ in range(2000)]
    assert delays[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert MAX_DELAY_SECONDS == 30, "as a reflector's backoff"
    assert delays[-1] == pytest.approx(30), "and no overflow"


async def test_keys_that_fail_again_before_their_retry_delay_no_other(
    queue: WorkQueue[str],
) -> None:
    for number in range(20_000):
        queue.add_rate_limited(f"bad {number % 150}")
    queue.add_rate_limited("other")
    failed_at = asyncio.get_running_loop().time()
    while (await queue.get())[0] != "other":
        pass
    assert asyncio.get_running_loop().time() - failed_at == pytest.approx(0.005)


async def test_the_server_may_say_a_longer_delay(queue: WorkQueue[str]) -> None:
    assert await failed(queue, "a", at_least_seconds=7) == pytest.approx(7)
    assert await failed(queue, "a", at_least_seconds=0.001) == pytest.approx(0.01)


async def test_retries_of_thousands_of_keys_are_spread_over_time(queue: WorkQueue[str]) -> None:
    for number in range(5000):
        queue.add_rate_limited(str(number))
    ready_at = []
    for _ in range(5000):
        await queue.get()
        ready_at.append(asyncio.get_running_loop().time())
    assert max(ready_at[:500]) == pytest.approx(0.005)
    assert max(ready_at) == pytest.approx(45), "100 per second"
