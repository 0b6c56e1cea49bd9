import asyncio

import pytest

from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import MAX_DELAY_SECONDS, WorkQueue


@pytest.fixture
def queue() -> WorkQueue[str]:
    return WorkQueue(name="queue")


async def take_all(queue: WorkQueue[str]) -> list[str]:
    return [(await queue.get())[0] for _ in range(len(queue))]


async def test_each_added_key_wakes_one_waiting_worker(queue: WorkQueue[str]) -> None:
    async with asyncio.TaskGroup() as group:
        getting = [group.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        for key in "abc":
            queue.add(key)
    assert {task.result()[0] for task in getting} == {"a", "b", "c"}


async def test_a_get_cancelled_while_it_wakes_leaves_its_key_to_another(
    queue: WorkQueue[str],
) -> None:
    async with asyncio.TaskGroup() as group:
        cancelled, other = group.create_task(queue.get()), group.create_task(queue.get())
        await asyncio.sleep(1)
        queue.add("a")
        cancelled.cancel()
    assert cancelled.cancelled()
    assert other.result()[0] == "a"


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
async def test_a_cancelled_get_does_not_keep_a_key_from_others(
    queue: WorkQueue[str], first: bool
) -> None:
    """Also if the key is added before the cancelled task has run again."""
    async with asyncio.TaskGroup() as group:
        getting = [group.create_task(queue.get()) for _ in range(3)]
        await asyncio.sleep(1)
        cancelled = getting.pop(0 if first else -1)
        cancelled.cancel()
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("b")
    assert cancelled.cancelled()
    assert {task.result()[0] for task in getting} == {"a", "b"}


@pytest.mark.parametrize(
    ("again", "order"),
    [
        pytest.param(Priority.HIGH, ["b", "a"], id="moved-up"),
        pytest.param(Priority.LOW, ["a", "b"], id="never-moved-down"),
    ],
)
async def test_adding_a_waiting_key_again_raises_its_priority_only(
    queue: WorkQueue[str], again: Priority, order: list[str]
) -> None:
    queue.add("a")
    queue.add("b")
    queue.add("b", again)
    assert await take_all(queue) == order


async def test_done_of_a_key_that_is_not_processed_is_an_error(queue: WorkQueue[str]) -> None:
    queue.add("a")
    with pytest.raises(KeyError):
        queue.done("a")


async def failed(queue: WorkQueue[str], *keys: str, at_least_seconds: float = 0.0) -> list[float]:
    """Fail each key, one after the other, and return when it is ready again."""
    delays = []
    for key in keys:
        failed_at = asyncio.get_running_loop().time()
        queue.add_rate_limited(key, at_least_seconds=at_least_seconds)
        found, _ = await queue.get()
        queue.done(found)
        delays.append(asyncio.get_running_loop().time() - failed_at)
    return delays


async def test_a_key_that_always_fails_is_retried_every_30_s(queue: WorkQueue[str]) -> None:
    delays = await failed(queue, *["a"] * 2000)
    assert delays[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert MAX_DELAY_SECONDS == 30, "as a reflector's backoff"
    assert delays[-1] == pytest.approx(30), "and no overflow"


async def test_a_forgotten_key_starts_again_and_delays_no_other(queue: WorkQueue[str]) -> None:
    await failed(queue, *"aaaaa")
    assert queue.num_requeues("a") == 5
    assert await failed(queue, "b") == pytest.approx([0.005])
    queue.forget("a")
    assert queue.num_requeues("a") == 0
    assert await failed(queue, "a") == pytest.approx([0.005])


async def test_the_server_may_say_a_longer_delay(queue: WorkQueue[str]) -> None:
    assert await failed(queue, "a", at_least_seconds=7) == pytest.approx([7])
    assert await failed(queue, "a", at_least_seconds=0.001) == pytest.approx([0.01])


async def test_retries_of_thousands_of_keys_are_spread_over_time(queue: WorkQueue[str]) -> None:
    for number in range(5000):
        queue.add_rate_limited(str(number))
    ready_at = []
    for _ in range(5000):
        await queue.get()
        ready_at.append(asyncio.get_running_loop().time())
    assert max(ready_at[:500]) == pytest.approx(0.005)
    assert max(ready_at) == pytest.approx(45), "100 per second"
