import asyncio

import pytest

from kruise_probe.workqueue.priority import Priority
from kruise_probe.workqueue.queue import WorkQueue


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


async def next_at(queue: WorkQueue[str]) -> tuple[str, float]:
    key, _ = await queue.get()
    queue.done(key)
    return key, asyncio.get_running_loop().time()


@pytest.mark.parametrize(("at_least", "ready_at"), [(0.001, 0.005), (7.0, 7.0)])
async def test_a_rate_limited_key_waits_for_its_backoff_or_longer_if_the_server_says_so(
    queue: WorkQueue[str], at_least: float, ready_at: float
) -> None:
    queue.add_rate_limited("a", at_least_seconds=at_least)
    _, at = await next_at(queue)
    assert at == pytest.approx(ready_at)
